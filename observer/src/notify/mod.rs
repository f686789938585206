//! Tells people and programs of incidents. Each receiver has a task of its own, so that one that is away delays no other.

mod alertmanager;
mod command;
mod delivery;
mod heartbeat;
mod http_client;
mod metrics;
mod webhook;

pub(crate) use metrics::NotifyMetrics;

use crate::incidents::{IncidentStore, Message, Receiver};
use crate::observed::SharedFleet;
use alertmanager::Alertmanager;
use anyhow::Result;
use command::NoticeCommand;
use delivery::{Delivery, deliver};
use http_client::HttpClient;
use settings::{AlertmanagerSettings, NoticeCommandSettings, NotifySettings, WebhookSettings};
use std::sync::Arc;
use tokio::task::JoinSet;
use webhook::Webhook;

/// Everybody who hears of incidents.
pub(crate) struct Notifier {
    alertmanagers: Vec<(Receiver, Alertmanager)>,
    webhooks: Vec<(Receiver, Webhook)>,
    commands: Vec<(Receiver, NoticeCommand)>,
    heartbeat: Option<String>,
    client: HttpClient,
}

impl Notifier {
    /// Prepares the receivers that the settings name.
    ///
    /// # Errors
    /// Returns an error if a file that a receiver needs cannot be used.
    pub(crate) fn new(settings: NotifySettings) -> Result<Self> {
        let NotifySettings { cacert, alertmanagers, heartbeat_url, webhooks, commands } = settings;
        let urls = alertmanagers.values().map(|a| &a.url);
        let urls = urls.chain(&heartbeat_url).chain(webhooks.values().map(|webhook| &webhook.url));
        let client = HttpClient::new(cacert.as_deref(), urls)?;
        let receiver = |name: String, min_severity| Receiver { name, min_severity };
        let alertmanager = |(name, alertmanager): (String, AlertmanagerSettings)| {
            let receiver = receiver(format!("alertmanager/{name}"), alertmanager.min_severity);
            let AlertmanagerSettings { url, user, .. } = alertmanager;
            Alertmanager::new(&url, user, client.clone()).map(|alertmanager| (receiver, alertmanager))
        };
        let webhook = |(name, webhook): (String, WebhookSettings)| {
            let receiver = receiver(format!("webhook/{name}"), webhook.min_severity);
            Webhook::new(webhook.url, webhook.secret_files, client.clone()).map(|webhook| (receiver, webhook))
        };
        let command = |(name, command): (String, NoticeCommandSettings)| {
            let receiver = receiver(format!("command/{name}"), command.min_severity);
            NoticeCommand::new(command.run, command.timeout).map(|command| (receiver, command))
        };
        Ok(Self {
            alertmanagers: alertmanagers.into_iter().map(alertmanager).collect::<Result<_>>()?,
            webhooks: webhooks.into_iter().map(webhook).collect::<Result<_>>()?,
            commands: commands.into_iter().map(command).collect::<Result<_>>()?,
            heartbeat: heartbeat_url,
            client,
        })
    }

    /// Returns everybody who gets messages.
    pub(crate) fn receivers(&self) -> Vec<Receiver> {
        let alertmanagers = self.alertmanagers.iter().map(|(receiver, _)| receiver);
        let webhooks = self.webhooks.iter().map(|(receiver, _)| receiver);
        alertmanagers
            .chain(webhooks)
            .chain(self.commands.iter().map(|(receiver, _)| receiver))
            .cloned()
            .collect()
    }

    /// Starts a task for each receiver.
    pub(crate) fn start(
        self,
        tasks: &mut JoinSet<()>,
        fleet: Arc<SharedFleet>,
        kept: &Arc<IncidentStore>,
        metrics: &NotifyMetrics,
    ) {
        for (receiver, alertmanager) in self.alertmanagers {
            tasks.spawn(alertmanager.follow(Delivery::new(receiver, kept, metrics)));
        }
        for (receiver, webhook) in self.webhooks {
            let send = move |message| {
                let webhook = webhook.clone();
                async move { webhook.send(message).await }
            };
            tasks.spawn(deliver(Delivery::new(receiver, kept, metrics), send));
        }
        for (receiver, command) in self.commands {
            let send = move |message: Message| {
                let command = command.clone();
                async move { command.run(&message).await }
            };
            tasks.spawn(deliver(Delivery::new(receiver, kept, metrics), send));
        }
        if let Some(url) = self.heartbeat {
            tasks.spawn(heartbeat::send(url, self.client, fleet));
        }
    }
}
