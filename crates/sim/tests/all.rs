//! The suites as one program: each module is a file beside this one. They run side by side, two at a time on two cores, so that one
//! computes while another waits for processes, disks or clocks.

mod copies;
mod crash;
mod damage;
mod extremes;
mod fault;
mod filters;
mod harness;
mod history;
mod kill;
mod lifetimes;
mod loads;
mod machine;
mod model;
mod readers;
mod threads;
mod versions;
