//! Report of a server at its end.

use super::maps::Map;
use crate::stats::Stats;
use serde_json::{Value, json};
use std::path::PathBuf;

/// Report of one function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FunctionReport {
    /// Its socket.
    pub socket: PathBuf,
    /// Clients served.
    pub clients: u64,
    /// Clients hung up on because another was connected.
    pub turned_away: u64,
    /// Messages handled.
    pub messages: u64,
    /// Commands executed.
    pub commands: u64,
    /// DMA accesses refused for want of a mapping or a right.
    pub dma_refused: u64,
    /// Present mappings.
    pub maps: Vec<Map>,
    /// Counters of the device.
    pub stats: Stats,
    /// The driver's faults that silicon would not report.
    pub complaints: Vec<String>,
    /// Requests refused, clients lost: what the socket saw that it should not have.
    pub notes: Vec<String>,
}

impl FunctionReport {
    /// As JSON.
    pub fn json(&self) -> Value {
        let s = &self.stats;
        let by_opcode: serde_json::Map<String, Value> = s
            .commands
            .iter()
            .map(|(opcode, count)| (format!("{opcode:#05x}"), json!(count)))
            .collect();
        let refused: Vec<Value> = s
            .refused
            .iter()
            .map(|(one, count)| {
                json!({
                    "command": one.command(),
                    "status": one.status,
                    "syndrome": format!("{:#x}", one.syndrome),
                    "count": count,
                })
            })
            .collect();
        json!({
            "socket": self.socket,
            "clients": self.clients,
            "turned_away": self.turned_away,
            "messages": self.messages,
            "commands": self.commands,
            "commands_by_opcode": by_opcode,
            "dma_refused": self.dma_refused,
            "maps": self.maps.len(),
            "mapped_bytes": self.maps.iter().map(|map| map.size).sum::<u64>(),
            "mmio_reads": s.mmio_reads,
            "mmio_stores": s.mmio_stores,
            "command_doorbells": s.command_doorbells,
            "sq_doorbells": s.sq_doorbells,
            "bf_wqes": s.bf_wqes,
            "bf_differs": s.bf_differs,
            "cq_arms": s.cq_arms,
            "eq_doorbells": s.eq_doorbells,
            "dma_reads": s.dma_reads,
            "dma_read_bytes": s.dma_read_bytes,
            "dma_writes": s.dma_writes,
            "dma_write_bytes": s.dma_write_bytes,
            "wqes": s.wqes,
            "cqes": s.cqes,
            "cqes_compressed": s.cqes_compressed,
            "eqes": s.eqes,
            "interrupts": s.interrupts,
            "frames_out": s.frames_out,
            "frames_in": s.frames_in,
            "frames_malformed": s.frames_malformed,
            "frames_wrong_pkey": s.frames_wrong_pkey,
            "retransmissions": s.retransmissions,
            "resets": s.resets,
            "refused": refused,
            "complaints": self.complaints,
            "notes": self.notes,
        })
    }
}

/// Report of a server.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// Its functions, in the order of their sockets.
    pub functions: Vec<FunctionReport>,
    /// Frames that the uplink lost.
    pub uplink_lost: u64,
}

impl Report {
    /// As JSON: an array of functions and the uplink's losses.
    pub fn json(&self) -> Value {
        let functions: Vec<Value> = self.functions.iter().map(FunctionReport::json).collect();
        json!({ "functions": functions, "uplink_lost": self.uplink_lost })
    }
}

impl core::fmt::Display for Report {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        for one in &self.functions {
            let s = &one.stats;
            writeln!(
                f,
                "{}: {} clients, {} messages, {} commands, {} resets, {} work requests, {} completions, \
                 {} interrupts, frames {} out {} in ({} again), DMA {} reads {} writes {} refused, {} mappings left",
                one.socket.display(),
                one.clients,
                one.messages,
                one.commands,
                s.resets,
                s.wqes,
                s.cqes,
                s.interrupts,
                s.frames_out,
                s.frames_in,
                s.retransmissions,
                s.dma_reads,
                s.dma_writes,
                one.dma_refused,
                one.maps.len(),
            )?;
            for (refused, count) in &s.refused {
                writeln!(
                    f,
                    "  refused {count} times: {}, status {:#x}, syndrome {:#x}",
                    refused.command(),
                    refused.status,
                    refused.syndrome,
                )?;
            }
            for complaint in &one.complaints {
                writeln!(f, "  complaint: {complaint}")?;
            }
            for note in &one.notes {
                writeln!(f, "  note: {note}")?;
            }
        }
        if self.uplink_lost != 0 {
            writeln!(f, "uplink: {} frames lost", self.uplink_lost)?;
        }
        Ok(())
    }
}
