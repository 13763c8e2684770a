//! Running other programs: one way to turn "could not start" and "ended badly"
//! into an error that shows the command and what it said.

use std::process::{Command, Output, Stdio};

use anyhow::{Context, Result, bail};

/// Runs `command` with its output captured and returns standard output.
/// Standard error appears in the error only.
pub fn output(command: &mut Command) -> Result<String> {
    let shown = show(command);
    let Output {
        status,
        stdout,
        stderr,
    } = command
        .stdin(Stdio::null())
        .output()
        .with_context(|| format!("cannot start `{shown}`"))?;
    if !status.success() {
        let said = String::from_utf8_lossy(&stderr);
        bail!("`{shown}` ended with {status}\n{}", said.trim_end());
    }
    Ok(String::from_utf8_lossy(&stdout).into_owned())
}

/// The command as a person would type it.
pub fn show(command: &Command) -> String {
    std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy())
        .collect::<Vec<_>>()
        .join(" ")
}

/// Quotes a word for a POSIX shell.
pub fn quote(word: &str) -> String {
    format!("'{}'", word.replace('\'', r"'\''"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn quoted_words_survive_a_shell() {
        let word = "it's $HOME `x` \"y\" \\ \n z";
        let echoed = output(Command::new("sh").args(["-c", &format!("printf %s {}", quote(word))]));
        assert_eq!(echoed.unwrap(), word);
    }

    #[test]
    fn failures_show_the_command_and_its_words() {
        let error = output(Command::new("sh").args(["-c", "echo broken >&2; exit 3"]))
            .unwrap_err()
            .to_string();
        assert!(
            error.contains("sh -c") && error.contains("broken"),
            "{error}"
        );
    }
}
