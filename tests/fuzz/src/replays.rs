//! Reports and recordings of cards that come by mail: the model reads them, and is then the card.

use dat_tests::bringup::Rig;
use mlx5_model::replay::Replay;

/// Runs the target.
pub fn run(data: &[u8]) {
    match Replay::read(data) {
        Ok(replay) => {
            let _ = replay.describe();
            let mut card = replay.config();
            card.init_time = 0;
            let rig = Rig::with(card, crate::world::MEMORY);
            let mut bytes = [0; 256];
            rig.slot.hca().bar_read(0, &mut bytes);
            rig.slot.hca().config_read(0, &mut bytes);
        }
        Err(line) => {
            let _ = line.to_string();
        }
    }
}
