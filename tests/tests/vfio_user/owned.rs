//! Buffers that are posted by ownership: a wait that is given up frees nothing, and the memory goes
//! when nobody has a piece of it.

use std::time::Duration;

use dat_core::{CloseFlag, DtoStatus, Event, MemPriv, OwningPoster};
use vfio_host::NicStorage;
use vfio_host::aio::AsyncNic;
use vfio_host::owned::{Piece, Pool};
use vfio_host::user::VfioUser;

use crate::rig::{LONG, NONE, Pair, Rig};

const SHORT: Duration = Duration::from_millis(30);
type Poster<'h> = OwningPoster<'h, hca_mlx5::Mlx5<'h, VfioUser>, Piece<'h, VfioUser>, 8>;

#[test]
fn a_dropped_future_leaves_the_buffer_with_the_device() {
    let rig = Rig::new();
    let hosts = [rig.host(0), rig.host(1)];
    let mut rooms = [Box::new(NicStorage::new()), Box::new(NicStorage::new())];
    let [mut a, b] = Pair::open(&hosts, &mut rooms).sides;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    runtime.unwrap().block_on(async {
        let (evd, ep) = (b.evd, b.ep);
        let mut nic = AsyncNic::new(b.nic).unwrap();
        let pool = Pool::register(&mut nic, b.pz, 2, 100, MemPriv::LOCAL).unwrap();
        let mut poster = Poster::new(nic.ep_take_poster(ep).unwrap()).unwrap();
        let piece = pool.take().unwrap();
        assert_eq!((piece.len(), pool.left()), (128, 1));
        poster.post_recv(piece, NONE).unwrap();
        for _ in 0..3 {
            let wait = tokio::time::timeout(SHORT, nic.evd_wait(evd, 1)).await;
            assert!(wait.is_err());
            // The wait is gone; the buffer is where it was.
            assert_eq!((pool.left(), poster.out()), (1, (0, 1)));
        }
        let (error, pool) = pool.close(&mut nic).unwrap_err();
        assert_eq!(error.ret().ty(), dat_core::DatType::InvalidState);

        a.buffer.copy_in(0, b"it was kept");
        let message = a.near(0, 11);
        a.nic.ep_post_send(a.ep, &message, 1, NONE).unwrap();
        let event = tokio::time::timeout(LONG, nic.evd_wait(evd, 1)).await;
        let done = poster.complete(event.unwrap().unwrap()).unwrap();
        assert_eq!((done.status, done.len), (DtoStatus::Success, 11));
        assert_eq!(done.buffer.to_vec(11), b"it was kept");

        // A buffer in the program's hand is freed when it is dropped; one that is posted when the
        // Endpoint ends, with that.
        let mut answer = done.buffer;
        assert_eq!(answer.copy_in(120, b"more than fits"), 8);
        poster.post_recv(answer, NONE).unwrap();
        let now = nic.now();
        assert!(poster.free(now, &mut nic, drop).is_ok());
        assert_eq!(pool.left(), 2);
        pool.close(&mut nic).unwrap();
        let mut peer = AsyncNic::new(a.nic).unwrap();
        let (closed, ended) = tokio::join!(nic.close(CloseFlag::Abrupt), peer.evd_wait(a.evd, 2));
        closed.unwrap();
        assert!(matches!(ended, Ok(Event::Dto(_))), "{ended:?}");
        assert_eq!(peer.evd_dequeue(a.evd), Ok(Event::Disconnected(a.ep)));
    });
}
