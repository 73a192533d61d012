//! `cargo xtask bench` runs this: one case for callgrind to count, or all of them against the
//! clock.
//!
//! Output is one record a line, its fields separated by tabs, the first field its kind.
#![expect(clippy::print_stdout, reason = "a program that tells what it measured")]

use std::process::ExitCode;

use clap::Parser;
use dat_tests::bench::{cases, economy, registration, sizes, stage, threads};
use hca_mlx5::platform::Blocks;

/// Rounds of timing, each of all cases.
const ROUNDS: usize = 6;

#[derive(Parser)]
#[command(about = "Benchmarks of the data path; see `cargo xtask bench`")]
struct Options {
    /// List the cases: name, operations of a block, goal, whether it is only an aim, goal by
    /// doorbells of 8 bytes, time goal in hundredths, the case of the peers, the limit, whether it rings
    #[arg(long)]
    list: bool,
    /// Run one case
    #[arg(long)]
    case: Option<String>,
    /// Operations of that case, rounded up to whole blocks
    #[arg(long, default_value_t = 2048)]
    ops: usize,
    /// Time all cases and the limit
    #[arg(long)]
    time: bool,
    /// Time these cases only
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
    /// Blocks of each case under `--time`
    #[arg(long, default_value_t = 4001)]
    blocks: usize,
    /// Count what the device does
    #[arg(long)]
    economy: bool,
    /// Bytes of state
    #[arg(long)]
    sizes: bool,
    /// What a registration costs
    #[arg(long)]
    registration: bool,
    /// Ring by doorbells of 8 bytes, as without write-combining
    #[arg(long)]
    words: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.words {
        stage::set_blocks(Blocks::Words);
    }
    if options.list {
        for case in cases::CASES {
            println!(
                "case\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}\t{}",
                case.name,
                case.ops,
                case.goal,
                case.aim,
                case.words_goal,
                case.time_goal,
                case.peer,
                case.limit,
                case.rings()
            );
        }
    }
    if let Some(name) = &options.case {
        let Some(case) = cases::find(name) else {
            eprintln!("error: there is no case {name}; --list lists them");
            return ExitCode::FAILURE;
        };
        let blocks = options.ops.div_ceil(case.ops);
        let _ = case.run(blocks);
        // With the blocks of the warm-up.
        println!("ran\t{name}\t{}", (blocks + blocks / 10) * case.ops);
    }
    if options.time {
        threads::pin(0);
        // Other work of the machine only adds time, to some cases of a round and not to others: so
        // the best round of each counts.
        let blocks = options.blocks.div_ceil(ROUNDS);
        let only = |name| options.only.is_empty() || options.only.iter().any(|one| one == name);
        let cases: Vec<_> = cases::CASES.iter().filter(|case| only(case.name)).collect();
        let mut best = vec![f64::INFINITY; cases.len()];
        for _ in 0..ROUNDS {
            for (best, case) in best.iter_mut().zip(&cases) {
                *best = best.min(case.run(blocks));
            }
        }
        for (best, case) in best.iter().zip(cases) {
            println!("time\t{}\t{best:.3}", case.name);
        }
    }
    if options.time && options.only.is_empty() && !options.words {
        let both = threads::measure(options.blocks);
        println!("threads\tlimit\t{:.3}\t{:.3}", both.limit[0], both.limit[1]);
        println!("threads\twr8_rt1\t{:.3}\t{:.3}", both.wr8[0], both.wr8[1]);
    }
    if options.economy {
        for one in economy::all() {
            println!(
                "economy\t{}\t{:.3}\t{:.1}\t{:.3}\t{:.3}\t{:.3}",
                one.name, one.mmio_stores, one.bf_bytes, one.dma_reads, one.dma_writes, one.cqes
            );
        }
    }
    if options.sizes {
        for (name, bytes, goal) in sizes::all() {
            println!("size\t{name}\t{bytes}\t{goal}");
        }
    }
    if options.registration {
        for one in registration::all() {
            let place = if one.served { "over vfio-user" } else { "in process" };
            println!(
                "registration\t{}\t{place}\t{:.1}\t{:.1}\t{}\t{}\t{}",
                one.name, one.register, one.release, one.goal, one.commands, one.mappings
            );
        }
    }
    ExitCode::SUCCESS
}
