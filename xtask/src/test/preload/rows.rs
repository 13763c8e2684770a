//! The pairs of unmodified programs, and on which libraries each is run.

use anyhow::Result;

use crate::guest::Bench;
use crate::library::Library;
use crate::test::columns::ORIGINAL;
use crate::vm::roots;

/// The file that is sent.
pub const FROM: &str = "/tmp/preload-from";
/// Where what is copied arrives.
pub const TO: &str = "/tmp/preload-to";

/// Two programs of which one sends [`FROM`] to the other. Both are for a
/// shell; `$IP` stands for the address on the RDMA device.
pub struct Row {
    /// What it is called.
    pub name: &'static str,
    /// What they are, as in the path.
    pub programs: &'static [&'static str],
    /// Command of the server.
    pub server: &'static str,
    /// Command of the client.
    pub client: &'static str,
    /// The server goes on when its client has ended.
    pub goes_on: bool,
    /// What arrives goes to [`TO`].
    pub copies: bool,
    /// Both with `RDMAV_FORK_SAFE`, and the server listens by TCP at this port.
    pub forks: Option<u16>,
    /// The first version of the original that does well as the server.
    pub original_server: Option<u32>,
    /// And as the client.
    pub original_client: Option<u32>,
}

impl Row {
    /// Programs that end by themselves and copy nothing, on our library alone.
    const fn new(
        name: &'static str,
        programs: &'static [&'static str],
        server: &'static str,
        client: &'static str,
    ) -> Self {
        Self {
            name,
            programs,
            server,
            client,
            goes_on: false,
            copies: false,
            forks: None,
            original_server: None,
            original_client: None,
        }
    }

    /// The libraries of server and client that it is run on.
    pub fn pairs<'a>(&self, bench: &'a Bench) -> Result<Vec<[&'a Library; 2]>> {
        let version = roots::version(None, ORIGINAL)?;
        let version: u32 = version.split('.').next().unwrap_or_default().parse()?;
        let does_well = |since: Option<u32>| since.is_some_and(|since| version >= since);
        let ours = &bench.ours;
        let mut pairs = vec![[ours, ours]];
        if does_well(self.original_server) {
            pairs.push([&Library::Original, ours]);
        }
        if does_well(self.original_client) {
            pairs.push([ours, &Library::Original]);
        }
        Ok(pairs)
    }
}

/// All of them.
pub const ROWS: &[Row] = &[
    Row {
        copies: true,
        original_server: Some(65),
        original_client: Some(65),
        ..Row::new(
            "nc sends a file to nc",
            &["nc.openbsd"],
            "nc.openbsd -l -N $IP 7601 > /tmp/preload-to",
            "nc.openbsd -N $IP 7601 < /tmp/preload-from",
        )
    },
    Row {
        copies: true,
        original_server: Some(65),
        original_client: Some(65),
        ..Row::new(
            "socat sends a file to socat",
            &["socat"],
            "socat -u TCP-LISTEN:7602,bind=$IP OPEN:/tmp/preload-to,creat",
            "socat -u OPEN:/tmp/preload-from TCP:$IP:7602",
        )
    },
    Row {
        goes_on: true,
        copies: true,
        ..Row::new(
            "curl fetches a file from Python's http.server",
            &["python3", "curl"],
            "/usr/bin/python3 -m http.server 7603 --bind $IP --directory /tmp",
            "curl --silent --fail --output /tmp/preload-to http://$IP:7603/preload-from",
        )
    },
    Row {
        original_server: Some(65),
        original_client: Some(65),
        ..Row::new(
            "iperf3 sends to iperf3",
            &["iperf3"],
            "iperf3 --server --one-off --bind $IP --port 7604",
            "iperf3 --client $IP --port 7604 --bytes 1000003",
        )
    },
    Row {
        original_server: Some(65),
        original_client: Some(65),
        ..Row::new(
            "iperf3 receives from iperf3 on three streams",
            &["iperf3"],
            "iperf3 --server --one-off --bind $IP --port 7605",
            "iperf3 --client $IP --port 7605 --bytes 1000003 --reverse --parallel 3",
        )
    },
    Row::new(
        "datagrams of iperf3",
        &["iperf3"],
        "iperf3 --server --one-off --bind $IP --port 7612",
        "iperf3 --client $IP --port 7612 --udp --length 1000 --bytes 500000 --bitrate 10M",
    ),
    Row {
        goes_on: true,
        copies: true,
        forks: Some(7608),
        ..Row::new(
            "socat forks to send a file back",
            &["socat"],
            "socat TCP-LISTEN:7608,bind=$IP,fork EXEC:cat",
            "socat -t 60 - TCP:$IP:7608 < /tmp/preload-from > /tmp/preload-to",
        )
    },
    Row {
        goes_on: true,
        copies: true,
        ..Row::new(
            "curl fetches a file twice from nginx over one connection",
            &["nginx", "curl"],
            concat!(
                "nginx -p /tmp/ -e /dev/null -g 'daemon off; master_process off; pid /tmp/preload-nginx;' ",
                "-c $DATA/nginx.conf"
            ),
            "curl --silent --fail --output /tmp/preload-to http://$IP:7609/preload-from \
                 --output /tmp/preload-to http://$IP:7609/preload-from",
        )
    },
    Row {
        goes_on: true,
        copies: true,
        forks: Some(7609),
        ..Row::new(
            "curl fetches a file twice from nginx with two workers",
            &["nginx", "curl"],
            "nginx -p /tmp/ -e /dev/null -g 'daemon off; pid /tmp/preload-nginx;' -c $DATA/nginx.conf",
            "curl --silent --fail --output /tmp/preload-to http://$IP:7609/preload-from \
             --output /tmp/preload-to http://$IP:7609/preload-from",
        )
    },
    Row {
        goes_on: true,
        ..Row::new(
            "redis-benchmark with redis-server, pipelined",
            &["redis-server", "redis-benchmark"],
            "redis-server --bind $IP --port 7610 --protected-mode no --save ''",
            "redis-benchmark -h $IP -p 7610 -t set,get -n 200 -c 5 -P 4 -d 5000 --threads 2",
        )
    },
    Row {
        goes_on: true,
        original_server: Some(65),
        original_client: Some(65),
        ..Row::new(
            "Python asks memcached",
            &["memcached", "python3"],
            "memcached -u root -l $IP -p 7611 -U 0 -t 2",
            "/usr/bin/python3 $DATA/memcached.py $IP 7611",
        )
    },
];
