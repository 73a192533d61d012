//! Tests of the engines: single packets against a responder, a requester against scripted
//! answers, datagrams, and two engines over a wire that loses, doubles, swaps and spoils.

#![expect(clippy::cast_possible_truncation, reason = "numbers in tests are small and known")]

mod abuse;
mod datagrams;
mod impaired;
mod link;
mod mock;
mod requester;
mod responder;
mod unconnected;
