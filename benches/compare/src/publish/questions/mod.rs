//! The questions that a user has, and their answers from the results.

mod list;
mod question;
mod reasons;

use super::tables::{escaped, markdown};
use super::text::{fill_in, with_unit};
use super::verdict::Verdict;
use crate::results::{Outcome, Results, Row, Samples};
use crate::workload::Family;
use crate::workloads::family_of;
use list::QUESTIONS;
use question::Against::{Best, Only};
use question::Question;
use reasons::{FASTER_CLOCK, NO_GAIN, NOT_FASTER};
use std::fmt;
use tourbillon_book::figure::figure;

/// Returns the numbers of won and lost questions, and the table of all questions. The table is ordered by families of
/// workloads.
pub(super) fn table(results: &Results) -> String {
    let answers: Vec<_> = QUESTIONS.iter().map(|question| (question, question.answer(results))).collect();
    let mut table = markdown(["question", "verdict", "ours", "best other", "other / ours", "best of tokio"]);
    for family in Family::ALL {
        let of_family: Vec<_> =
            answers.iter().filter(|(question, _)| family_of(question.workload) == family).collect();
        if of_family.is_empty() {
            continue;
        }
        let count = Count::of(of_family.iter().map(|(_, answer)| answer));
        table.add_row([format!("**{}**", family.title()), count.to_string()]);
        table.add_rows(of_family.into_iter().map(|(question, answer)| match answer {
            Some(answer) => answer.cells(question),
            None => [question.text, "not measured", "", "", "", ""].map(escaped),
        }));
    }
    let count = Count::of(answers.iter().map(|(_, answer)| answer));
    format!("**Of {} questions: {count}.**\n\n{table}", answers.len())
}

/// The numbers of questions that our contestants won, that ended level, and that our contestants lost.
#[derive(Default)]
struct Count {
    won: usize,
    level: usize,
    lost: usize,
    not_measured: usize,
}

impl Count {
    fn of<'a>(answers: impl Iterator<Item = &'a Option<Answer<'a>>>) -> Self {
        let mut count = Self::default();
        for answer in answers {
            *match answer.as_ref().map(|answer| answer.verdict) {
                Some(Verdict::Won) => &mut count.won,
                Some(Verdict::Level) => &mut count.level,
                Some(Verdict::Lost) => &mut count.lost,
                None => &mut count.not_measured,
            } += 1;
        }
        count
    }
}

impl fmt::Display for Count {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { won, level, lost, not_measured } = self;
        write!(f, "{won} won, {level} level, {lost} lost")?;
        if *not_measured > 0 {
            write!(f, ", {not_measured} not measured")?;
        }
        Ok(())
    }
}

/// Returns the number of lost questions. Leaves out the questions about `workload`. Returns `None` if no other question
/// was measured.
pub(super) fn lost_without(workload: &str, results: &Results) -> Option<usize> {
    let others = QUESTIONS.iter().filter(|question| question.workload != workload);
    let verdicts: Vec<_> = others.filter_map(|question| Some(question.answer(results)?.verdict)).collect();
    let lost = verdicts.iter().filter(|&&verdict| verdict == Verdict::Lost).count();
    (!verdicts.is_empty()).then_some(lost)
}

/// Returns the page's text on lost questions, with a paragraph for each reason.
pub(super) fn losses(results: &Results) -> String {
    let mut reasons: Vec<(&str, Vec<String>)> = Vec::new();
    for question in QUESTIONS {
        let lost = question.answer(results).filter(|answer| answer.verdict == Verdict::Lost);
        let Some(answer) = lost else { continue };
        let other = escaped(&answer.other.contestant);
        let entry = format!("*{}* (to {other}, which takes {} of ours)", question.text, answer.share());
        match reasons.iter_mut().find(|(why, _)| *why == question.why && !why.is_empty()) {
            Some((_, entries)) => entries.push(entry),
            None => reasons.push((question.why, vec![entry])),
        }
    }
    if reasons.is_empty() {
        return "In none of these questions.".to_owned();
    }
    let paragraph = |(why, entries): (&str, Vec<String>)| {
        let why = if why.is_empty() { "Why is not known.".to_owned() } else { fill_in(why, results) };
        format!("- {}: {why}", entries.join("; "))
    };
    reasons.into_iter().map(paragraph).collect::<Vec<_>>().join("\n")
}

/// Returns the page's text on the cases in which a user should not expect a gain.
pub(super) fn cautions(results: &Results) -> String {
    let of_servers = QUESTIONS.iter().filter(|question| family_of(question.workload) == Family::Servers);
    let answers: Vec<_> = of_servers.map(|question| question.answer(results)).collect();
    let verdicts =
        format!("Of {} questions about such servers: {}.", answers.len(), Count::of(answers.iter()));
    let text = |text| fill_in(text, results);
    [
        format!("- *A server on tokio gains no time.* {verdicts} {}", text(NO_GAIN)),
        format!("- *Much of the lead in arming is a faster clock.* {}", text(FASTER_CLOCK)),
        format!("- *A timer that a connection keeps is not faster in futures.* {}", text(NOT_FASTER)),
    ]
    .join("\n")
}

/// The answer to a question, computed from the results.
struct Answer<'a> {
    outcome: &'a Outcome,
    ours: Samples,
    other: &'a Row,
    others: Samples,
    tokio: Option<Samples>,
    verdict: Verdict,
}

impl Question {
    fn answer<'a>(&self, results: &'a Results) -> Option<Answer<'a>> {
        let outcome = results.outcome(self.workload, self.case)?;
        let row = outcome.row(self.ours)?;
        let other = match self.against {
            Best => outcome.best_like(row, self.column)?,
            Only(names) => outcome.best(self.column, |row| names.contains(&&*row.contestant))?,
        };
        let (ours, others) = (row.samples(self.column)?, other.samples(self.column)?);
        let is_tokio = |other: &Row| other.contestant.starts_with("tokio") && other.is_like(row);
        let tokio = outcome.best(self.column, is_tokio).and_then(|row| row.samples(self.column));
        let verdict = Verdict::of(&ours, &others);
        Some(Answer { outcome, ours, other, others, tokio, verdict })
    }
}

impl Answer<'_> {
    fn cells(&self, question: &Question) -> [String; 6] {
        let figure_of = |samples: &Samples| with_unit(samples.median(), self.outcome, question.column);
        let with_range = |samples: &Samples| format!("{}{}", figure_of(samples), samples.range(figure));
        let ratio = self.others.median() / self.ours.median();
        let both = [&self.ours, &self.others];
        let doubt = if both.iter().any(|samples| samples.count() == 1) {
            // With one round, the spread of the other contestant is not known.
            ", one round"
        } else if self.verdict == Verdict::Level && both.iter().any(|samples| samples.is_disturbed()) {
            // The verdict is only level because the rounds are too far apart to decide.
            " ~"
        } else {
            ""
        };
        let verdict = match self.verdict {
            Verdict::Level => format!("level{doubt}"),
            decided => format!("**{decided}**{doubt}"),
        };
        [
            question.text.to_owned(),
            verdict,
            with_range(&self.ours),
            escaped(&format!("{}: {}", self.other.contestant, with_range(&self.others))),
            if ratio.is_finite() { figure(ratio) } else { "-".to_owned() },
            self.tokio.as_ref().map_or_else(|| "-".to_owned(), figure_of),
        ]
    }

    /// Returns the other contestant's median in percent of ours, such as `41.2 %`.
    fn share(&self) -> String {
        format!("{} %", figure(self.others.median() / self.ours.median() * 100.0))
    }
}

#[cfg(test)]
mod tests {
    use super::list::{HANDLE, MANY, ask};
    use super::question::Against;
    use super::reasons::LINKS;
    use super::*;
    use crate::publish::{prose, synthetic, text};
    use crate::workloads::{WORKLOADS, measures};

    const OTHER: &str = "Mutex<BinaryHeap>";

    fn question(against: Against) -> Question {
        ask(
            "Pairs",
            ("pair", MANY, "t1"),
            HANDLE,
            against,
            "Because of {pair; 1,000,000 pending; engine, Handle; t1}.",
        )
    }

    fn answered(ours: &[f64], other: &[f64]) -> [String; 6] {
        let rows: [(&str, &[f64]); 3] = [(HANDLE, ours), (OTHER, other), ("tokio, Sleep", &[90.0, 92.0])];
        let outcome = synthetic::outcome("pair", MANY, &["t1"], &rows);
        let results = Results { outcomes: vec![outcome], ..synthetic::results() };
        let question = question(Best);
        question.answer(&results).unwrap().cells(&question)
    }

    #[test]
    fn a_verdict_stands_beside_its_figures() {
        let expected = [
            "Pairs",
            "**won**",
            "10.0 ns (9.00..11.0)",
            "Mutex\\<BinaryHeap>: 30.0 ns (20.0..40.0)",
            "3.00",
            "91.0 ns",
        ];
        assert_eq!(answered(&[9.0, 10.0, 11.0], &[20.0, 30.0, 40.0]), expected);
        assert_eq!(answered(&[29.0, 31.0], &[30.0, 33.0])[1], "level");
        assert_eq!(answered(&[50.0, 51.0], &[20.0, 30.0])[1], "**lost**");
    }

    #[test]
    fn a_verdict_in_doubt_says_so() {
        assert_eq!(answered(&[9.0], &[20.0, 30.0])[1], "**won**, one round");
        assert_eq!(answered(&[50.0, 51.0], &[20.0])[1], "**lost**, one round");
        assert_eq!(
            answered(&[0.0], &[0.0])[1..],
            ["level, one round", "0 ns", "Mutex\\<BinaryHeap>: 0 ns", "-", "91.0 ns"]
        );
        assert_eq!(answered(&[10.0, 90.0], &[20.0, 21.0])[1], "level ~");
        assert_eq!(answered(&[50.0, 90.0], &[20.0, 21.0])[1], "**lost**");
    }

    #[test]
    fn wins_and_losses_are_counted_and_losses_explained() {
        let mut results = synthetic::results();
        let counts = |results: &Results| table(results).lines().next().unwrap().to_owned();
        let before = counts(&results);
        let outcome = results.outcomes.iter_mut().find(|outcome| outcome.workload == "memory").unwrap();
        let ours = outcome.rows.iter_mut().find(|row| row.contestant == HANDLE).unwrap();
        ours.numbers.insert("bytes".to_owned(), vec![1e6; 3]);
        assert_ne!(counts(&results), before);
        let losses = losses(&results);
        assert!(losses.contains("*Memory of a pending timer, with its payload* (to "), "{losses}");
        assert!(losses.contains("which takes 0.00") && losses.contains(LINKS), "{losses}");
        let lost = lost_without("timeout", &results).unwrap();
        assert_eq!(lost_without("memory", &results), Some(lost - 1));
    }

    #[test]
    fn cautions_count_the_verdicts_about_servers() {
        let text = cautions(&synthetic::results());
        let servers = QUESTIONS.iter().filter(|question| family_of(question.workload) == Family::Servers);
        assert!(text.contains(&format!("Of {} questions about such servers: ", servers.count())), "{text}");
        assert_eq!(text.lines().filter(|line| line.starts_with("- *")).count(), 3, "{text}");
    }

    #[test]
    fn questions_without_figures_are_not_measured() {
        let results = Results { outcomes: Vec::new(), ..synthetic::results() };
        let table = table(&results);
        assert_eq!(table.matches("| not measured").count(), QUESTIONS.len());
        assert!(table.contains(&format!("0 lost, {} not measured.**", QUESTIONS.len())), "{table}");
        assert_eq!(losses(&results), "In none of these questions.");
        let outcome = synthetic::outcome("pair", MANY, &["t1"], &[(HANDLE, &[1.0])]);
        let results = Results { outcomes: vec![outcome], ..synthetic::results() };
        assert!(question(Best).answer(&results).is_none());
        assert!(question(Only(&["nobody"])).answer(&results).is_none());
    }

    #[test]
    fn questions_name_what_the_book_measures() {
        for Question { text, workload, case, column, ours, against, .. } in QUESTIONS {
            assert!(measures(workload, case, ours, column), "{text}: {workload}, {case}, {ours}, {column}");
            if let Only(others) = against {
                for other in *others {
                    assert!(measures(workload, case, other, column), "{text}: {other}");
                }
            }
        }
    }

    #[test]
    fn reasons_and_texts_of_workloads_have_figures_of_the_book_only() {
        let of_workloads = WORKLOADS.iter().flat_map(|workload| [workload.about, workload.reading]);
        let of_questions = QUESTIONS.iter().flat_map(|question| [question.why, question.text]);
        for text in of_workloads.chain(of_questions).chain([NO_GAIN, FASTER_CLOCK, NOT_FASTER]) {
            for piece in text::pieces(text) {
                match piece {
                    text::Piece::Words(words) => {
                        assert_eq!(prose::figures(words), [""; 0], "{text}");
                        assert!(!words.contains(['{', '}']), "{words}");
                    }
                    text::Piece::Place(place) => {
                        for contestant in [place.contestant].into_iter().chain(place.divisor) {
                            let known = measures(place.workload, place.case, contestant, place.column);
                            assert!(known, "{contestant} in {text}");
                        }
                    }
                }
            }
        }
    }
}
