//! Reads a host's services and keeps the leases alive that their keys are attached to.

use crate::error::{Class, StoreError};
use crate::observer::RequestKind;
use crate::request::{Deadline, Repeat};
use crate::session::Session;
use schema::keys::Key;
use schema::names::{HostName, ServiceName};
use schema::snapshot::KeySnapshot;

impl Session {
    /// Returns how many seconds a lease still lasts if nobody keeps it alive; negative if it is over.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn lease_seconds_left(&self, lease: i64, deadline: Deadline) -> Result<i64, StoreError> {
        let answer = self
            .call(RequestKind::Lease, "lease time to live", Repeat::Freely, deadline, |mut c| async move {
                c.lease_time_to_live(lease, None).await
            })
            .await?;
        Ok(answer.ttl())
    }

    /// Grants a lease of this many seconds and returns its id.
    ///
    /// # Errors
    /// Returns the store's error.
    pub async fn grant_lease(&self, seconds: i64, deadline: Deadline) -> Result<i64, StoreError> {
        let granted = self
            .call(RequestKind::Lease, "lease grant", Repeat::Freely, deadline, |mut client| async move {
                client.lease_grant(seconds, None).await
            })
            .await?;
        Ok(granted.id())
    }

    /// Revokes a lease. All keys that are attached to it are deleted. A store that raised the alarm NOSPACE does
    /// that too.
    ///
    /// # Errors
    /// Returns the store's error; [`StoreError::LeaseGone`] if the lease does not exist any more.
    pub(crate) async fn revoke_lease(&self, lease: i64, deadline: Deadline) -> Result<(), StoreError> {
        let revoked =
            self.call(RequestKind::Lease, "lease revoke", Repeat::Freely, deadline, |mut c| async move {
                c.lease_revoke(lease).await
            });
        revoked.await.map(drop)
    }

    /// Revokes a lease that is not needed any more. If that fails, the lease expires by itself.
    pub(crate) async fn give_up_lease(&self, lease: i64, deadline: Deadline) {
        if let Err(error) = self.revoke_lease(lease, deadline).await {
            tracing::debug!(%error, "a lease could not be revoked");
        }
    }

    /// Keeps a lease alive, whatever became of the claim of the host.
    ///
    /// # Errors
    /// Returns the store's error; [`StoreError::LeaseGone`] if the lease does not exist any more.
    pub(crate) async fn keep_lease(&self, lease: i64, deadline: Deadline) -> Result<(), StoreError> {
        // Opening the stream sends one keep-alive and waits for its answer.
        let kept =
            self.call(RequestKind::Lease, "lease keep-alive", Repeat::Freely, deadline, |mut c| async move {
                c.lease_keep_alive(lease).await
            });
        kept.await.map(drop)
    }

    /// Keeps a lease of this host alive, but only on a connection on which the host's claim was
    /// found unchanged. On another connection the store may have gone back, and the keep-alive
    /// would preserve outdated keys. Waits until the presence task has checked the connection.
    ///
    /// # Errors
    /// Returns the store's error; [`StoreError::LeaseGone`] if the lease does not exist any more.
    pub async fn keep_own_lease(&self, lease: i64, deadline: Deadline) -> Result<(), StoreError> {
        let operation = "lease keep-alive";
        let unreachable = |detail: &str| StoreError::Unreachable { operation, detail: detail.into() };
        let limit = deadline.left().min(self.config().attempt_timeout);
        let kept = tokio::time::timeout(limit, async {
            let (mut client, generation) = self.client().await?;
            if self.proven().wait_for(|proven| *proven == generation).await.is_err() {
                return Err(unreachable("the claim is not kept any more"));
            }
            // Opening the stream sends one keep-alive and waits for its answer.
            let kept = client.lease_keep_alive(lease).await.map_err(|e| self.error(operation, &e));
            if kept.as_ref().is_err_and(|e| e.class() != Class::Fatal) {
                self.move_on(generation).await;
            }
            kept.map(drop)
        });
        kept.await.unwrap_or_else(|_| Err(unreachable("the claim could not be read in time")))
    }

    /// Reads the records and the health of these services of a host.
    ///
    /// # Errors
    /// Returns the store's error; a partial result is never returned.
    pub async fn read_services(
        &self,
        host: &HostName,
        services: impl IntoIterator<Item = &ServiceName>,
        deadline: Deadline,
    ) -> Result<KeySnapshot, StoreError> {
        let of = |service: &ServiceName| {
            [Key::Service(service.clone(), host.clone()), Key::Health(service.clone(), host.clone())]
        };
        let keys: Vec<Key> = services.into_iter().flat_map(of).collect();
        if keys.is_empty() {
            return Ok(KeySnapshot::default());
        }
        self.read_keys(&keys, deadline).await
    }
}
