//! The command line of srp-target: what may be said, and what it means. Opens
//! nothing, and resolves nothing but names of network interfaces.

use std::ffi::CString;
use std::net::{IpAddr, Ipv6Addr, SocketAddr, SocketAddrV6};
use std::path::PathBuf;
use std::str::FromStr;

use clap::Parser;

/// Serves files and block devices to SRP initiators such as Linux's ib_srp,
/// over RDMA.
#[derive(Parser, Debug)]
#[command(version, after_help = AFTER)]
pub struct Options {
    /// Address and port to listen on; the address is that of an RDMA device
    #[arg(long, value_name = "IP:PORT", value_parser = portal)]
    pub portal: SocketAddr,
    /// A file or block device to serve; may be repeated. Options: `ro` allows
    /// reading only, `lun=N` sets the logical unit number (otherwise they are
    /// counted from 0), `serial=TEXT` sets the serial number that the disk is
    /// recognised by (otherwise machine and path decide)
    #[arg(long = "lun", value_name = "FILE[,OPTION…]", required = true)]
    pub luns: Vec<LunOption>,
    /// Allow reading only, on all disks
    #[arg(long)]
    pub read_only: bool,
    /// Let in this initiator address or network only; may be repeated
    #[arg(long, value_name = "ADDR[/BITS]")]
    pub allow: Vec<Network>,
    /// Most sessions at once
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(1..))]
    pub max_sessions: u32,
    /// Most memory of all channels in MiB: each takes about 34, which cannot be
    /// used for anything else meanwhile [default: half of the machine's]
    #[arg(long, value_name = "MIB")]
    pub memory: Option<usize>,
    /// First half of the target port, 16 hexadecimal digits [default: as
    /// --ioc-guid]
    #[arg(long, value_name = "HEX", value_parser = eight_bytes)]
    pub id_ext: Option<u64>,
    /// Second half of the target port [default: derived from machine and portal]
    #[arg(long, value_name = "HEX", value_parser = eight_bytes)]
    pub ioc_guid: Option<u64>,
    /// Commands that an initiator may have under way on one channel
    #[arg(long, value_name = "N", default_value_t = 128, value_parser = clap::value_parser!(u16).range(2..=1024))]
    pub credits: u16,
    /// Do not take the data of small writes along with the command
    #[arg(long)]
    pub no_immediate_data: bool,
    /// Rights of initiators on the queue pairs: `current` is what today's
    /// kernel gives, `manual` what srpt_init_ch_qp(9) says
    #[arg(long, value_enum, default_value_t = Policy::Current)]
    pub qp_policy: Policy,
    /// Let the scheduler choose the processors of the channels' threads. Without
    /// this option each keeps to one of those that the program may use (taskset(1))
    #[arg(long)]
    pub any_processor: bool,
    /// How long the thread of a channel looks for commands before it sleeps, in
    /// microseconds; 0 to sleep at once. After a sleep that ended soon it looks
    /// longer, up to a millisecond, while that pays
    #[arg(long, value_name = "N", default_value_t = 200, value_parser = clap::value_parser!(u32).range(0..=1000))]
    pub look: u32,
    /// Print a line with rates and times every second
    #[arg(long)]
    pub stats: bool,
}

const AFTER: &str = "\
SIGTERM and SIGINT let commands under way end, disconnect and exit. SIGHUP looks \
for new sizes of the disks. RDMACM_LOG=error|warn|info|debug|trace says more.";

/// Rights of initiators on the queue pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum Policy {
    /// None.
    Current,
    /// Remote read and remote write.
    Manual,
}

/// A disk as the command line names it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LunOption {
    /// The file or block device.
    pub path: PathBuf,
    /// Only reads are allowed.
    pub read_only: bool,
    /// Its logical unit number, if set.
    pub number: Option<u16>,
    /// Its serial number, if set.
    pub serial: Option<String>,
}

impl FromStr for LunOption {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        const LARGEST: u16 = 0x3fff;
        let mut words = text.split(',');
        let path = words.next().unwrap_or_default();
        if path.is_empty() {
            return Err("no file named".to_owned());
        }
        let mut lun = Self {
            path: path.into(),
            read_only: false,
            number: None,
            serial: None,
        };
        for word in words {
            match word.split_once('=') {
                None if word == "ro" => lun.read_only = true,
                Some(("lun", number)) => {
                    let number = number.parse().ok().filter(|number| *number <= LARGEST);
                    lun.number = Some(number.ok_or("lun= wants a number from 0 to 16383")?);
                }
                Some(("serial", serial)) if !serial.is_empty() => {
                    lun.serial = Some(serial.to_owned());
                }
                _ => {
                    return Err(format!(
                        "unknown option `{word}`; there are ro, lun=N and serial=TEXT"
                    ));
                }
            }
        }
        Ok(lun)
    }
}

/// Addresses that share their first bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Network {
    address: u128,
    mask: u128,
}

impl Network {
    /// Whether `address` is one of them.
    pub fn contains(&self, address: IpAddr) -> bool {
        (number(address) ^ self.address) & self.mask == 0
    }
}

/// An address as 128 bits; those of IPv4 in their mapped form.
fn number(address: IpAddr) -> u128 {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().to_bits(),
        IpAddr::V6(address) => address.to_bits(),
    }
}

impl FromStr for Network {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (address, bits) = match text.split_once('/') {
            Some((address, bits)) => (address, Some(bits)),
            None => (text, None),
        };
        let address: IpAddr = address
            .parse()
            .map_err(|_| format!("`{address}` is not an IP address"))?;
        let width: u32 = if address.is_ipv4() { 32 } else { 128 };
        let bits = match bits {
            None => width,
            Some(bits) => bits
                .parse()
                .ok()
                .filter(|bits| *bits <= width)
                .ok_or_else(|| format!("`/{bits}` is not a number from 0 to {width}"))?,
        };
        Ok(Self {
            address: number(address),
            mask: u128::MAX.checked_shl(width - bits).unwrap_or(0),
        })
    }
}

/// An address with a port. A link-local address of IPv6 names its interface, by
/// name or number: `[fe80::1%eth0]:5555`.
fn portal(text: &str) -> Result<SocketAddr, String> {
    let portal = match text.parse() {
        Ok(portal) => portal,
        Err(_) => scoped(text).ok_or("expected IP:PORT, [IP6]:PORT or [IP6%INTERFACE]:PORT")?,
    };
    if portal.port() == 0 {
        return Err("there is no well-known port: name one".to_owned());
    }
    match portal {
        SocketAddr::V6(v6) if v6.ip().is_unicast_link_local() && v6.scope_id() == 0 => {
            Err(format!(
                "a link-local address needs its interface: [{}%eth0]",
                v6.ip()
            ))
        }
        _ => Ok(portal),
    }
}

/// `[ADDRESS%INTERFACE]:PORT`
fn scoped(text: &str) -> Option<SocketAddr> {
    let (address, rest) = text.strip_prefix('[')?.split_once('%')?;
    let (interface, port) = rest.split_once("]:")?;
    let address: Ipv6Addr = address.parse().ok()?;
    let interface = CString::new(interface).ok()?;
    // SAFETY: a string with an end.
    let index = unsafe { libc::if_nametoindex(interface.as_ptr()) };
    (index != 0).then_some(())?;
    Some(SocketAddrV6::new(address, port.parse().ok()?, 0, index).into())
}

/// Up to 16 hexadecimal digits, `0x` allowed in front.
fn eight_bytes(text: &str) -> Result<u64, String> {
    let digits = text.strip_prefix("0x").unwrap_or(text);
    u64::from_str_radix(digits, 16).map_err(|_| "expected up to 16 hexadecimal digits".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn disks_have_options() {
        let lun: LunOption = "/d/a.img,ro,lun=200,serial=abc".parse().unwrap();
        let expected = LunOption {
            path: "/d/a.img".into(),
            read_only: true,
            number: Some(200),
            serial: Some("abc".to_owned()),
        };
        assert_eq!(lun, expected);
        for bad in ["", ",ro", "a,rw", "a,lun=16384", "a,lun=x", "a,serial="] {
            assert!(bad.parse::<LunOption>().is_err(), "{bad}");
        }
    }

    #[test]
    fn networks_contain_their_addresses_only() {
        let contains = |network: &str, address: &str| {
            let network: Network = network.parse().unwrap();
            network.contains(address.parse().unwrap())
        };
        assert!(contains("10.99.0.1", "10.99.0.1"));
        assert!(contains("10.99.0.1", "::ffff:10.99.0.1"));
        assert!(!contains("10.99.0.1", "10.99.0.2"));
        assert!(contains("10.99.0.0/16", "10.99.255.1"));
        assert!(!contains("10.99.0.0/16", "10.98.0.1"));
        assert!(contains("0.0.0.0/0", "1.2.3.4"));
        assert!(!contains("0.0.0.0/0", "fd99::1"));
        assert!(contains("fd99::/64", "fd99::7"));
        assert!(!contains("fd99::/64", "fd98::7"));
        assert!(contains("::/0", "10.0.0.1"));
        for bad in ["x", "10.0.0.1/33", "10.0.0.1/", "::1/129"] {
            assert!(bad.parse::<Network>().is_err(), "{bad}");
        }
    }

    #[test]
    fn a_portal_is_where_one_can_listen() {
        for good in [
            "10.0.0.1:5555",
            "[fd99::1]:1",
            "0.0.0.0:5555",
            "[fe80::1%7]:5",
        ] {
            assert_eq!(portal(good), Ok(good.parse().unwrap()), "{good}");
        }
        // The loopback interface has number 1 on every Linux machine.
        assert_eq!(portal("[fe80::1%lo]:5"), portal("[fe80::1%1]:5"));
        for bad in [
            "10.0.0.1",
            "10.0.0.1:0",
            "[fd99::1]:0",
            "[fe80::1]:5555",
            "[fe80::1%]:5",
            "[fe80::1%no-such-interface]:5",
            "[fe80::1%lo]",
            "[fe80::1%lo]:0",
            "10.0.0.1%lo:5555",
        ] {
            assert!(portal(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn the_command_line_is_consistent() {
        use clap::CommandFactory;
        Options::command().debug_assert();
    }
}
