//! Metrics of this process, under the names that every Prometheus library uses.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use solo_etcd::process::{Figure, FigureKind, figures};
use std::fmt;

/// Reads the figures of the process from the kernel when they are shown.
#[derive(Debug)]
pub(super) struct ProcessMetrics;

impl Collector for ProcessMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder) -> fmt::Result {
        for Figure { name, help, kind, value } in figures() {
            match kind {
                FigureKind::Counter => {
                    // The encoder adds the ending again.
                    let name = name.strip_suffix("_total").unwrap_or(name);
                    let counter = ConstCounter::new(value);
                    counter.encode(encoder.encode_descriptor(name, help, None, counter.metric_type())?)?;
                }
                FigureKind::Gauge => {
                    let gauge = ConstGauge::new(value);
                    gauge.encode(encoder.encode_descriptor(name, help, None, gauge.metric_type())?)?;
                }
            }
        }
        Ok(())
    }
}
