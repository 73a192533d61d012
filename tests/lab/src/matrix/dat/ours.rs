//! The programs over the provider of this workspace, for the side of the matrix that runs on the
//! host.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};

use super::kit::{Kit, PROGRAMS};
use super::{rows, tiers};
use crate::guest::stage::Stage;

/// What `dapltest` says when it serves.
pub(crate) const READY: &str = rows::POINT;

/// The programs, and what the registry knows.
pub(crate) struct Programs {
    kit: Kit,
    conf: PathBuf,
}

impl Programs {
    /// Registers one HCA under several names, each with an address, in a file of the name `side`.
    pub(crate) fn new(
        stage: &Stage<'_>,
        side: &str,
        socket: &Path,
        names: &[(&str, &str)],
    ) -> Result<Self> {
        let kit = Kit::find(&crate::folder()?)?;
        let device = format!("vfio-user:{}", socket.display());
        let mut registry = String::new();
        for (name, ip) in names {
            registry += &tiers::lines(stage, name, &[&device], &[ip], &kit.library, &[])?;
        }
        let conf = stage.path(&format!("{side}.conf"));
        fs::write(&conf, registry)?;
        Ok(Self { kit, conf })
    }

    /// Whether a command is one of them.
    pub(crate) fn has(command: &str) -> bool {
        PROGRAMS.iter().any(|name| command.split(' ').next() == Some(name))
    }

    /// Prepares a command.
    pub(crate) fn command(&self, command: &str) -> Result<Command> {
        let mut words = command.split_whitespace();
        let program = words.next().context("no program")?;
        let mut command = self.kit.under(&[], &self.kit.program(program), &self.conf)?;
        command.args(words);
        Ok(command)
    }
}
