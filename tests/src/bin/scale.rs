//! `cargo xtask scale` runs this: a crowd of objects, and every measured call beside it.
//!
//! Output is one record a line, its fields separated by tabs, the first field its kind.
#![expect(clippy::print_stdout, reason = "a program that tells what it measured")]

use std::path::PathBuf;
use std::process::ExitCode;

use clap::Parser;
use dat_tests::scale::calls;
use dat_tests::scale::cases;
use dat_tests::scale::crowd::{Counts, Crowd, DTOS, MOST};
use dat_tests::scale::figures::{self, Commands, Figure};
use dat_tests::scale::mesh::Mesh;
use dat_tests::scale::meter::Meter;
use dat_tests::scale::rate;
use dat_tests::scale::writes::{BLOCK, Writes, miss};
use hca_mlx5::cmd::dump::Observer;

#[derive(Parser)]
#[command(about = "Costs that grow with the number of objects; see `cargo xtask scale`")]
struct Options {
    /// List the cases: name, the ratio that it is allowed for now, or 0. And sums of them: name,
    /// nanoseconds that are the goal, the ratio as before, their parts
    #[arg(long)]
    list: bool,
    /// An idle `advance` with Event Dispatchers that have a CNO, instead of calls
    #[arg(long)]
    listened: bool,
    /// Figures that are no call's, instead of calls
    #[arg(long)]
    figures: bool,
    /// So many blocks of writes of all Endpoints, instead of calls
    #[arg(long)]
    writes: Option<usize>,
    /// These at random only
    #[arg(long)]
    random: bool,
    /// A mesh of so many adapters, each pair connected by `--eps` Endpoints, instead of calls
    #[arg(long)]
    mesh: Option<usize>,
    /// So many connections of two processes beside `--eps` others, and their rate, instead of calls
    #[arg(long)]
    rate: Option<usize>,
    /// Serve the models of `--rate` in this folder
    #[arg(long, value_name = "FOLDER", hide = true)]
    serve: Option<PathBuf>,
    /// Accept the connections of `--rate`
    #[arg(long, value_name = "FOLDER", hide = true)]
    accept: Option<PathBuf>,
    /// Connected Endpoints
    #[arg(long, default_value_t = 1)]
    eps: usize,
    /// Objects of each other kind; as many as Endpoints if not given
    #[arg(long)]
    objects: Option<usize>,
    /// Times that each call is measured
    #[arg(long, default_value_t = 2)]
    rounds: usize,
}

fn main() -> ExitCode {
    let options = Options::parse();
    if options.list {
        for (name, present) in cases::CASES {
            println!("case\t{name}\t{present}");
        }
        for (name, goal, present, parts) in cases::SUMS {
            println!("sum\t{name}\t{goal}\t{present}\t{}", parts.join(","));
        }
        return ExitCode::SUCCESS;
    }
    // Adapters with long tables are moved while they are made.
    let thread = std::thread::Builder::new().stack_size(1 << 29).spawn(move || run(&options));
    match thread.map(std::thread::JoinHandle::join) {
        Ok(Ok(())) => ExitCode::SUCCESS,
        _ => ExitCode::FAILURE,
    }
}

fn run(options: &Options) {
    let start = std::time::Instant::now();
    if let Some(nodes) = options.mesh {
        let mut mesh = Mesh::new(nodes, options.eps);
        let made = start.elapsed().as_secs_f64();
        mesh.talk();
        let connections = mesh.connections();
        mesh.end();
        let all = start.elapsed().as_secs_f64();
        println!("mesh\t{connections}\t{made:.1}\t{all:.1}");
        return;
    }
    if let Some(folder) = &options.serve {
        return rate::serve(folder);
    }
    if let Some(folder) = &options.accept {
        return rate::accept(folder, options.eps);
    }
    if let Some(more) = options.rate {
        return println!("rate\t{:.0}", rate::measure(options.eps, more));
    }
    let counts = Counts {
        eps: options.eps,
        objects: options.objects.unwrap_or(options.eps),
        listened: if options.listened { calls::LISTENED[1].1 } else { 0 },
        dtos: if options.figures { figures::DTOS } else { DTOS },
    };
    assert!(counts.eps <= MOST && counts.objects <= 1 << 14, "at most {MOST} Endpoints");
    if let Some(blocks) = options.writes {
        return write(counts.eps, blocks, options.random);
    }
    let commands: &'static Commands = Box::leak(Box::default());
    let observer: Option<&'static (dyn Observer + Sync)> =
        if options.figures { Some(commands) } else { None };
    let mut crowd = Crowd::new(counts, observer);
    println!("made\t{:.3}", start.elapsed().as_secs_f64());
    if options.figures {
        for Figure { name, value, goal, present } in figures::all(&mut crowd, commands) {
            println!("figure\t{name}\t{value}\t{goal}\t{present}");
        }
        return;
    }
    let mut meter = Meter::default();
    let make = if options.listened { calls::listened } else { calls::all };
    make(&mut crowd, &mut meter, options.rounds);
    for (case, nanoseconds) in &meter.ran {
        println!("ran\t{case}\t{nanoseconds:.0}");
    }
}

fn write(eps: usize, blocks: usize, random: bool) {
    let mut writes = Writes::new(eps);
    if !random {
        println!("write\tsequence\t{:.1}", writes.time(blocks));
    }
    writes.shuffle();
    println!("write\trandom\t{:.1}", writes.time(blocks));
    if !random {
        println!("write\tmiss\t{:.1}", miss(eps));
    }
    // With the blocks of the warm-up.
    println!("ran\twrites\t{}", (blocks + blocks / 10) * BLOCK);
}
