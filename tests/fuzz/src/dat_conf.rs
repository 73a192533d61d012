//! Parameters of a line of `dat.conf`, as the provider reads them, and the words in them: addresses
//! of devices, neighbours, classes. What is understood is understood again as it is printed.

use dat_core::Qos;
use vfio_host::{Address, class, neighbour};

/// Runs the target.
pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    if let Err(why) = dapldat::read_parameters(&text) {
        assert!(!why.is_empty());
    }
    for word in text.split_whitespace() {
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        if let Ok(address) = value.parse::<Address>() {
            assert_eq!(address.to_string().parse().ok(), Some(address));
        }
        let _ = (neighbour::parse(value), class::traffic_class(value), class::priority(value));
        if let Ok((qos, class)) = class::quality(value) {
            assert_ne!(qos, Qos::BestEffort);
            assert_eq!(class::quality(&class::words(qos, class)).ok(), Some((qos, class)));
        }
    }
}
