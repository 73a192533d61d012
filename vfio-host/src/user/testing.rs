//! The client without a host around it, for tests that are its server.

use std::os::fd::BorrowedFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::client::Client;
use crate::error::Error;

/// A request, whatever is answered.
type Request<'a> = &'a mut dyn FnMut(&mut Client) -> Result<(), Error>;

/// Makes each request of the client once, on a connected socket; `file` is what it maps. Stops
/// when the connection has ended.
#[doc(hidden)]
pub fn make_requests(stream: UnixStream, file: BorrowedFd<'_>) -> Result<(), Error> {
    let mut client = Client::greet(stream, Path::new("test"), Duration::from_secs(1))?;
    let mut page = [0; 4096];
    let (mut word, mut half) = ([0; 4], [0; 2]);
    let requests: [Request<'_>; 14] = [
        &mut |client| client.resettable().map(drop),
        &mut |client| client.region_len(0).map(drop),
        &mut |client| client.interrupts(2).map(drop),
        &mut |client| client.reset(),
        &mut |client| client.dma_map(3, file, 0, 0x10_0000, 0x1000),
        &mut |client| client.read(7, 0, &mut page),
        &mut |client| client.set_irqs(0x24, 2, 0, 1, Some(file)),
        &mut |client| client.read(7, 4, &mut half),
        &mut |client| client.write(7, 4, &[6, 0], false),
        &mut |client| client.write(0, 0x18, &[0; 4], true),
        &mut |client| client.write(0, 0x800, &[0; 8], true),
        &mut |client| client.read(0, 0, &mut word),
        &mut |client| client.dma_unmap(0x10_0000, 0x1000),
        &mut |client| client.set_irqs(0x21, 2, 0, 0, None),
    ];
    for request in requests {
        // A refusal does not end the connection.
        let _ = request(&mut client);
        if let Some(ended) = client.ended() {
            return Err(ended.clone());
        }
    }
    let _ = client.refused_writes();
    Ok(())
}
