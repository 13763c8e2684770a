//! Which sockets are to be sockets over RDMA: `preload_config` of
//! `/etc/rdma/rsocket` and the environment.
//!
//! A line of the file has four words: the beginning of program names, domain,
//! type and protocol, each `*` for any. Without a valid line, all sockets are.

use std::ffi::{CStr, c_char, c_int};
use std::fs;

use once_cell::race::OnceBox;

/// The address family of InfiniBand.
pub const AF_IB: c_int = 27;

const FILE: &str = "/etc/rdma/rsocket/preload_config";

/// Lines of this length and more are not read.
const LONGEST_LINE: usize = 120;

const FLAGS: c_int = libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;

/// Sockets that are to be sockets over RDMA; `None` means any.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Rule {
    domain: Option<c_int>,
    kind: Option<c_int>,
    protocol: Option<c_int>,
}

/// The configuration of this program.
#[derive(Debug, PartialEq, Eq)]
pub struct Config {
    /// Without: none of the file's lines is valid, and all sockets are meant.
    rules: Option<Vec<Rule>>,
    /// Entries of the send queue; 0 for the default.
    pub send_queue: c_int,
    /// Entries of the receive queue; 0 for the default.
    pub receive_queue: c_int,
    /// Bytes of inline data; 0 for the default.
    pub inline: c_int,
}

impl Config {
    /// The configuration, read at the first call.
    pub fn get() -> &'static Self {
        // Threads that come at once read it each.
        static CONFIG: OnceBox<Config> = OnceBox::new();
        CONFIG.get_or_init(|| Box::new(Self::read()))
    }

    fn read() -> Self {
        Self {
            rules: fs::read(FILE)
                .ok()
                .and_then(|text| rules(&String::from_utf8_lossy(&text), &program())),
            send_queue: number("RS_SQ_SIZE"),
            receive_queue: number("RS_RQ_SIZE"),
            inline: number("RS_INLINE"),
        }
    }

    /// Whether a socket that the program asks for is to be one over RDMA.
    pub fn wants(&self, domain: c_int, kind: c_int, protocol: c_int) -> bool {
        let kind = kind & !FLAGS;
        let protocol = match (kind, protocol) {
            (libc::SOCK_STREAM, 0 | libc::IPPROTO_TCP) => libc::IPPROTO_TCP,
            (libc::SOCK_DGRAM, 0 | libc::IPPROTO_UDP) => libc::IPPROTO_UDP,
            _ => return false,
        };
        if !matches!(domain, libc::AF_INET | libc::AF_INET6 | AF_IB) {
            return false;
        }
        let meets = |rule: Option<c_int>, value| rule.is_none_or(|rule| rule == value);
        self.rules.as_ref().is_none_or(|rules| {
            rules.iter().any(|rule| {
                meets(rule.domain, domain)
                    && meets(rule.kind, kind)
                    && meets(rule.protocol, protocol)
            })
        })
    }
}

fn number(variable: &str) -> c_int {
    std::env::var(variable)
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(0)
}

/// The short name of the program.
fn program() -> String {
    unsafe extern "C" {
        static program_invocation_short_name: *const c_char;
    }
    // SAFETY: set by the C library before any program code runs.
    let name = unsafe { program_invocation_short_name };
    if name.is_null() {
        return String::new();
    }
    // SAFETY: not null, and then a string.
    unsafe { CStr::from_ptr(name) }
        .to_string_lossy()
        .into_owned()
}

/// The rules for a program; `None` if the file has no valid line at all.
fn rules(text: &str, program: &str) -> Option<Vec<Rule>> {
    let lines = text.lines().filter(|line| line.len() < LONGEST_LINE);
    let valid: Vec<_> = lines.filter_map(rule).collect();
    let own = |name: &str| {
        name == "*"
            || program
                .get(..name.len())
                .is_some_and(|start| start.eq_ignore_ascii_case(name))
    };
    let rules = valid.iter().filter(|(name, _)| own(name));
    (!valid.is_empty()).then(|| rules.map(|(_, rule)| *rule).collect())
}

/// The beginning of program names and the rule of a line.
fn rule(line: &str) -> Option<(&str, Rule)> {
    if line.starts_with('#') {
        return None;
    }
    let mut words = line.split_whitespace();
    let mut word = || words.next();
    let (name, domain, kind, protocol) = (word()?, word()?, word()?, word()?);
    let domains = [
        ("INET", libc::AF_INET),
        ("INET6", libc::AF_INET6),
        ("IB", AF_IB),
    ];
    let kinds = [("STREAM", libc::SOCK_STREAM), ("DGRAM", libc::SOCK_DGRAM)];
    let protocols = [("TCP", libc::IPPROTO_TCP), ("UDP", libc::IPPROTO_UDP)];
    let rule = Rule {
        domain: choice(domain, &["AF_", "PF_"], &domains)?,
        kind: choice(kind, &["SOCK_"], &kinds)?,
        protocol: choice(protocol, &["IPPROTO_"], &protocols)?,
    };
    Some((name, rule))
}

/// What a word says: `Some(None)` for any, `None` if it says nothing known.
fn choice(word: &str, prefixes: &[&str], names: &[(&str, c_int)]) -> Option<Option<c_int>> {
    if word == "*" {
        return Some(None);
    }
    let word = word.to_ascii_uppercase();
    let word = prefixes
        .iter()
        .find_map(|prefix| word.strip_prefix(prefix))
        .unwrap_or(&word);
    let (_, value) = names.iter().find(|(name, _)| *name == word)?;
    Some(Some(*value))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn config(text: &str, program: &str) -> Config {
        Config {
            rules: rules(text, program),
            send_queue: 0,
            receive_queue: 0,
            inline: 0,
        }
    }

    const STREAM: (c_int, c_int, c_int) = (libc::AF_INET, libc::SOCK_STREAM, 0);
    const DATAGRAM: (c_int, c_int, c_int) = (libc::AF_INET6, libc::SOCK_DGRAM, libc::IPPROTO_UDP);

    fn wanted(text: &str, program: &str) -> [bool; 2] {
        let config = config(text, program);
        [STREAM, DATAGRAM].map(|(domain, kind, protocol)| config.wants(domain, kind, protocol))
    }

    #[test]
    fn without_a_valid_line_all_sockets_are_meant() {
        assert_eq!(wanted("", "nc"), [true, true]);
        assert_eq!(
            wanted("# nc * * *\nnc inet\nnc * raw *\n", "nc"),
            [true, true]
        );
        let long = format!("nc * * * {}", "x".repeat(LONGEST_LINE));
        assert_eq!(wanted(&long, "other"), [true, true]);
    }

    #[test]
    fn a_line_is_for_programs_whose_names_begin_so() {
        assert_eq!(wanted("net * * *", "NetPerf"), [true, true]);
        assert_eq!(wanted("netperf * * *", "net"), [false, false]);
        assert_eq!(wanted("* * stream *\nnc * * *", "nc"), [true, true]);
        assert_eq!(wanted("* * stream *\nnc * * *", "curl"), [true, false]);
    }

    #[test]
    fn words_are_known_with_and_without_prefix() {
        for text in [
            "nc inet stream tcp",
            "nc AF_INET SOCK_STREAM IPPROTO_TCP",
            "nc pf_inet * Tcp",
        ] {
            assert_eq!(wanted(text, "nc"), [true, false], "{text}");
        }
        for text in [
            "nc INET6 DGRAM UDP",
            "nc * sock_dgram *",
            "nc af_inet6 * ipproto_udp",
        ] {
            assert_eq!(wanted(text, "nc"), [false, true], "{text}");
        }
    }

    #[test]
    fn flags_do_not_matter_and_other_sockets_are_never_meant() {
        let config = config("nc inet stream tcp", "nc");
        assert!(config.wants(libc::AF_INET, libc::SOCK_STREAM | FLAGS, 0));
        let all = Config {
            rules: None,
            ..config
        };
        assert!(!all.wants(libc::AF_UNIX, libc::SOCK_STREAM, 0));
        assert!(!all.wants(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_ICMP));
        assert!(!all.wants(libc::AF_INET, libc::SOCK_STREAM, libc::IPPROTO_SCTP));
    }
}
