//! `cargo run --example orders --features sqlx -- postgresql://app@127.0.0.1/shop` runs the shop of `shop.rs`. It creates
//! a table `orders`, and the schema `tourbillon`. The 30 days pass at once: the shop moves a timer.
#![expect(clippy::print_stdout, reason = "an example shows what it does")]

mod shop;

fn main() -> Result<(), Box<dyn std::error::Error + Send + Sync>> {
    shop::run(&std::env::args().nth(1).ok_or("the URL of a database is needed")?)?;
    println!("order 17 was paid, and order 18 was closed after 30 days");
    Ok(())
}
