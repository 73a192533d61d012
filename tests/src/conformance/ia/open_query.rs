//! Cases of `dat_ib_open_query` and `dat_ib_close_query`: adapters that are asked and not used.

use std::time::Duration;

use dat_core::{
    AttrValue, CloseFlag, DatSubtype, DatType, Event, IaAttr, ProviderAttr, ProviderInfo, Registry,
};

use crate::conformance::{A, Adapters, B, LIMIT, Side, refused};
use crate::host::chosen::makes_up_addresses;

/// What lasts of a query's answer: a function without an address makes its GUID up at each bring-up.
fn lasting((adapter, mut provider): (IaAttr, ProviderAttr)) -> (IaAttr, ProviderAttr) {
    let guids = provider.provider_specific_attr.iter_mut();
    for guid in guids.filter(|attr| attr.name == "DAT_IB_NODE_GUID" && makes_up_addresses()) {
        guid.value = AttrValue::Guid(0);
    }
    (adapter, provider)
}

/// It returns what the open adapter's query returned, and will return.
pub fn a_query_tells_what_the_adapter_tells(ias: &mut Adapters<'_, impl Side>) {
    let open = lasting(ias.a.query());
    ias.a.close(CloseFlag::Graceful).unwrap();
    let asked = ias.a.open_query();
    assert_eq!(lasting(asked.query()), open);
    assert_eq!(lasting(asked.query()), open);
    asked.close_query().unwrap();
    ias.a.reopen();
    assert_eq!(lasting(ias.a.query()), open);
}

/// Peers do not see it: a request to its address finds no listener.
pub fn a_query_is_not_on_the_network(ias: &mut Adapters<'_, impl Side>) {
    ias.b.close(CloseFlag::Graceful).unwrap();
    let asked = ias.b.open_query();
    let end = ias.end(A);
    ias.ask(&end, 7, LIMIT, b"");
    assert_eq!(ias.event(A, end.conn), Event::Unreachable(end.ep));
    asked.close_query().unwrap();
}

/// Closing gives the device back, as often as one likes; leaving keeps it up, and an adapter is
/// opened on it.
pub fn a_query_that_is_closed_makes_way(ias: &mut Adapters<'_, impl Side>) {
    ias.b.close(CloseFlag::Graceful).unwrap();
    ias.b.open_query().close_query().unwrap();
    let asked = ias.b.open_query();
    let hca = asked.leave();
    ias.b.reopen_on(hca);
    let ends = ias.connected();
    ias.disconnect(&ends[A], CloseFlag::Abrupt);
    assert_eq!(ias.event(B, ends[B].conn), Event::Disconnected(ends[B].ep));
    ias.expect_no_event(Duration::from_millis(1), &[(B, ends[B].conn)]);
}

/// Asked by name: the provider is in use until the query is closed, and an unknown name has none.
pub fn a_query_is_opened_by_name(ias: &mut Adapters<'_, impl Side>) {
    let info = |ia_name| ProviderInfo { ia_name, dapl_version: (2, 0), is_thread_safe: false };
    ias.a.close(CloseFlag::Graceful).unwrap();
    let mut registry = Registry::<'_, usize, 1>::new();
    registry.add_provider(info("a"), A).unwrap();
    refused(registry.open(&info("b")), DatType::ProviderNotFound, DatSubtype::NameNotFound);
    let side = *registry.open(&info("a")).unwrap();
    let asked = ias[side].open_query();
    assert_eq!(asked.query().0.ia_address, ias.a.address());
    let removed = registry.remove_provider(&info("a"));
    refused(removed, DatType::ProviderInUse, DatSubtype::None);
    asked.close_query().unwrap();
    registry.close(&info("a")).unwrap();
    assert_eq!(registry.remove_provider(&info("a")), Ok(A));
}
