mod counters;
mod ep;
mod post;
mod srq;
