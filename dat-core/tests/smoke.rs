mod pair;
use pair::*;
use dat_core::*;
#[test]
fn smoke() {
    let mut p = Pair::strangers(Merge::Apart, None);
    p.ask(b"hi").unwrap();
    for _ in 0..4 {
    println!("{:?} {:?}", p.a.ia.cm_counters(), p.b.ia.cm_counters());
    println!("{:?} {:?}", p.a.ia.advance(p.now), p.b.ia.advance(p.now));
    }
    println!("{:?} ", p.a.ia.ep_query(p.a.ep));
    println!("{:?} ", p.a.drain(p.a.conn));
    let mut p = Pair::connected();
    p.b.post_recv(7).unwrap();
    p.a.send(9, FLAGS).unwrap();
    assert_eq!(p.b.dtos(p.b.recv), [(7, DtoStatus::Success)]);
    assert_eq!(p.a.dtos(p.a.request), [(9, DtoStatus::Success)]);
}
