//! Writes metrics whose values are read when they are shown.

use prometheus_client::encoding::{DescriptorEncoder, EncodeLabelSet, EncodeMetric};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use std::fmt;

/// Writes gauges and counters one after the other, with values that are read when they are shown.
#[derive(Debug)]
pub struct MetricsEncoder<'a>(pub DescriptorEncoder<'a>);

impl MetricsEncoder<'_> {
    /// Writes a gauge.
    ///
    /// # Errors
    /// Returns the error of the encoder.
    pub fn gauge(&mut self, name: &str, help: &str, value: f64) -> fmt::Result {
        let gauge = ConstGauge::new(value);
        gauge.encode(self.0.encode_descriptor(name, help, None, MetricType::Gauge)?)
    }

    /// Writes a gauge that is 1 or 0.
    ///
    /// # Errors
    /// Returns the error of the encoder.
    pub fn flag(&mut self, name: &str, help: &str, value: bool) -> fmt::Result {
        self.gauge(name, help, f64::from(u8::from(value)))
    }

    /// Writes a counter.
    ///
    /// # Errors
    /// Returns the error of the encoder.
    pub fn counter(&mut self, name: &str, help: &str, value: u64) -> fmt::Result {
        let counter = ConstCounter::new(value);
        counter.encode(self.0.encode_descriptor(name, help, None, MetricType::Counter)?)
    }

    /// Writes a gauge for each set of labels.
    ///
    /// # Errors
    /// Returns the error of the encoder.
    pub fn family<L: EncodeLabelSet>(
        &mut self,
        name: &str,
        help: &str,
        values: impl IntoIterator<Item = (L, f64)>,
    ) -> fmt::Result {
        let mut encoder = self.0.encode_descriptor(name, help, None, MetricType::Gauge)?;
        for (labels, value) in values {
            ConstGauge::new(value).encode(encoder.encode_family(&labels)?)?;
        }
        Ok(())
    }
}
