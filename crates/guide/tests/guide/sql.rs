//! Runs the SQL of the pages, in its order. Each page has a PostgreSQL server of its own, with the schema of the
//! timers.

use crate::blocks::{Page, Use, pages, uses};
use crate::shell::shows;
use std::time::Duration;
use tourbillon_durable::Spec;
use tourbillon_durable::store::{Claimant, Durability, Limit, TimerStore as _};
use tourbillon_fault::Postgres;
use tourbillon_postgres::{Connect, PostgresStore};

/// Opens the deployment as a user, and lets no user but the first create it.
fn open(server: &Postgres, user: &str) -> PostgresStore {
    let connect = Connect::to(&server.url_of(user)).unwrap();
    let builder = PostgresStore::builder().poll(None).migrate(user == "postgres");
    pollster::block_on(builder.open(&connect)).unwrap()
}

/// Runs the code blocks of a page on a server, in the page's order. Returns the number of blocks that ran, and `None`
/// if there is no PostgreSQL.
fn follow(page: &Page) -> Option<(Postgres, usize)> {
    let server = Postgres::start(&["wal_level=replica"])?;
    drop(open(&server, "postgres"));
    let (mut rows, mut count) = (String::new(), 0);
    for (block, usage) in uses(page) {
        let place = format!("{}:{}", page.name, block.line);
        match usage {
            Use::Sql => {
                rows = server
                    .try_sql("postgres", &block.text)
                    .unwrap_or_else(|error| panic!("{place}: {error}"));
                count += 1;
            }
            Use::Rows => assert!(shows(&rows, &block.text), "{place}: {} is not in {rows}", block.text),
            _ => {}
        }
    }
    Some((server, count))
}

fn has_sql(page: &Page) -> bool {
    uses(page).iter().any(|(_, usage)| *usage == Use::Sql)
}

fn page_on_postgres() -> Page {
    pages().into_iter().find(|page| page.name == "postgres.md").unwrap()
}

#[test]
fn the_sql_of_the_pages_does_what_the_pages_say() {
    let pages: Vec<_> = pages().into_iter().filter(has_sql).collect();
    assert!(pages.len() > 1, "{} pages", pages.len());
    for page in &pages {
        let Some((_server, count)) = follow(page) else { return };
        assert!(count > 0, "{}", page.name);
    }
}

#[test]
fn a_page_with_false_sql_or_rows_is_found() {
    let page = |text: &str| Page { name: "none.md".to_owned(), text: text.to_owned() };
    let Some((_server, count)) = follow(&page("```sql\nSELECT 1;\n```\n```text\n1\n```\n")) else { return };
    assert_eq!(count, 1);
    let wrong =
        ["```sql\nSELECT 1;\n```\n```text\n2\n```\n", "```sql\nSELECT * FROM tourbillon.none;\n```\n"];
    for text in wrong {
        let _panic = std::panic::catch_unwind(|| follow(&page(text)).map(|(_, count)| count)).unwrap_err();
    }
}

#[test]
fn the_roles_of_the_page_may_do_what_the_page_says_and_no_more() {
    let Some((server, _)) = follow(&page_on_postgres()) else { return };
    // The shop creates and cancels timers, and reads none.
    let shop = |sql: &str| server.try_sql("shop", sql);
    assert!(shop("SELECT tourbillon.schedule('mail', key => 'k')").is_ok());
    assert_eq!(shop("SELECT phase FROM tourbillon.look('k')"), Ok("pending".to_owned()));
    for table in ["timer", "stored_timer", "node"] {
        let refused = shop(&format!("SELECT * FROM tourbillon.{table}")).unwrap_err();
        assert!(refused.contains("42501"), "{refused}");
    }
    // The node delivers, and changes no schema.
    let node = open(&server, "node");
    let op = Spec::new(()).operation("mail", Vec::new(), node.now(), &Default::default()).unwrap();
    let _outcomes = pollster::block_on(node.apply(vec![op], Durability::PowerLoss)).unwrap();
    std::thread::sleep(Duration::from_millis(10));
    let by = Claimant { incarnation: node.incarnation(), lease: Duration::from_secs(30) };
    let claimed = pollster::block_on(node.claim(by, 1, Limit { timers: 10, bytes: u64::MAX }, None)).unwrap();
    assert_eq!(claimed.leased.len(), 2);
    pollster::block_on(node.leave()).unwrap();
    let refused = server.try_sql("node", "ALTER TABLE tourbillon.timer ADD COLUMN a int").unwrap_err();
    assert!(refused.contains("42501"), "{refused}");
    // The reader sees timers, and calls no function.
    assert!(server.try_sql("reader", "SELECT * FROM reports.timers").unwrap().contains("mail"));
    let refused = server.try_sql("reader", "SELECT tourbillon.cancel('k')").unwrap_err();
    assert!(refused.contains("42501"), "{refused}");
}

#[test]
fn a_replica_answers_the_queries_of_the_page() {
    let page = page_on_postgres();
    let Some((server, _)) = follow(&page) else { return };
    let replica = server.replica();
    let is_query =
        |text: &str| text.contains("SELECT ") && !["BEGIN", "CREATE "].iter().any(|word| text.contains(word));
    let mut count = 0;
    for (block, usage) in uses(&page) {
        if usage == Use::Sql && is_query(&block.text) {
            let _rows = replica.try_sql("postgres", &block.text).unwrap();
            count += 1;
        }
    }
    assert!(count > 2, "{count}");
}
