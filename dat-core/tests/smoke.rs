mod pair;
use pair::*;
use dat_core::*;
#[test]
fn smoke() {
    let mut p = Pair::connected();
    p.b.post_recv(7).unwrap();
    p.a.send(9, FLAGS).unwrap();
    assert_eq!(p.b.dtos(p.b.recv), [(7, DtoStatus::Success)]);
    assert_eq!(p.a.dtos(p.a.request), [(9, DtoStatus::Success)]);
}
