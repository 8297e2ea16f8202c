//! Answers `GET /metrics`, and no other request, on a loopback address.
//!
//! Every local user can connect. So the number of connections, the bytes of a request and its time
//! are limited; beyond a limit the connection is closed. One thread accepts, and each request has a
//! thread of its own, all of ordinary class.
//!
//! A web page may make its own name resolve to 127.0.0.1. A browser then lets the page read the
//! response. Such a request has the page's name in its header `Host` and is refused.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::time::{Duration, Instant};

use super::Source;

/// Most requests at a time.
const CONNECTIONS_MAX: usize = 8;
/// Most bytes of a request; most headers.
const REQUEST_BYTES_MAX: usize = 4096;
const HEADERS_MAX: usize = 32;
/// How long a client may take to send its request, and to take the response.
const CLIENT_WITHIN: Duration = Duration::from_secs(2);
/// The pause after a failed accept, which usually means that no descriptors are left.
const ACCEPT_AGAIN: Duration = Duration::from_millis(100);
/// Stack of a request's thread. It is small, because a daemon may have locked its memory.
const STACK_BYTES: usize = 256 * 1024;

const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";
const PLAIN: &str = "text/plain; charset=utf-8";

/// Parses the address of `--metrics`.
///
/// # Errors
/// The text is no address, or the address is not a loopback address: as one line.
pub(in crate::daemon) fn loopback(text: &str) -> Result<SocketAddr, String> {
    let expected = "expected a loopback address and a port: 127.0.0.1:9435 or [::1]:9435";
    match text.parse::<SocketAddr>() {
        Ok(address) if address.ip().is_loopback() => Ok(address),
        Ok(address) => Err(format!(
            "found {address}; the names of all users' domains stay on this machine, {expected}"
        )),
        Err(_) => Err(expected.to_owned()),
    }
}

/// Starts threads that answer scrapers until the process ends.
///
/// # Errors
/// The thread did not start.
pub(in crate::daemon) fn start(listener: TcpListener, source: Source) -> io::Result<()> {
    let source = Arc::new(source);
    thread("upcall-metrics", move || accept(&listener, &source))
}

fn thread(name: &str, body: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let builder = std::thread::Builder::new().name(name.to_owned()).stack_size(STACK_BYTES);
    builder.spawn(body).map(drop)
}

/// Accepts for ever. The number of clones of `source` is the number of requests.
fn accept(listener: &TcpListener, source: &Arc<Source>) {
    loop {
        let Ok((stream, _)) = listener.accept() else {
            std::thread::sleep(ACCEPT_AGAIN);
            continue;
        };
        if Arc::strong_count(source) > CONNECTIONS_MAX {
            continue; // dropped: the client finds the connection closed
        }
        let source = source.clone();
        // If the thread does not start, the connection is closed as well.
        let _ = thread("upcall-scrape", move || {
            // An error means that the client has gone or was too slow.
            let _ = serve(stream, &source);
        });
    }
}

fn serve(mut stream: TcpStream, source: &Source) -> io::Result<()> {
    let (status, kind, body) = match request(&mut stream)? {
        Request::Metrics => match source.text() {
            Ok(text) => ("200 OK", OPEN_METRICS, text),
            Err(why) => ("503 Service Unavailable", PLAIN, format!("{why}\n").into()),
        },
        Request::OtherPath => ("404 Not Found", PLAIN, "expected /metrics\n".into()),
        Request::ForeignHost => ("403 Forbidden", PLAIN, "expected Host: 127.0.0.1\n".into()),
        Request::OtherMethod => ("405 Method Not Allowed", PLAIN, "expected GET\n".into()),
        Request::Malformed => ("400 Bad Request", PLAIN, "expected GET /metrics\n".into()),
    };
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\
         Connection: close\r\n\r\n"
    );
    let until = Instant::now() + CLIENT_WITHIN;
    write_until(&mut stream, head.as_bytes(), until)?;
    write_until(&mut stream, body.as_bytes(), until)
}

/// A client's request.
#[derive(Debug, PartialEq, Eq)]
enum Request {
    Metrics,
    OtherPath,
    /// The header `Host` does not name this machine.
    ForeignHost,
    OtherMethod,
    Malformed,
}

/// Reads a request up to its empty line.
///
/// # Errors
/// The client closed the connection or took too long.
fn request(stream: &mut TcpStream) -> io::Result<Request> {
    let until = Instant::now() + CLIENT_WITHIN;
    let mut bytes = [0; REQUEST_BYTES_MAX];
    let mut read = 0;
    loop {
        stream.set_read_timeout(Some(time_left(until)?))?;
        match stream.read(&mut bytes[read..]) {
            Ok(0) => return Err(io::ErrorKind::UnexpectedEof.into()),
            Ok(more) => read += more,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
        match parse(&bytes[..read]) {
            Some(request) => return Ok(request),
            None if read == bytes.len() => return Ok(Request::Malformed),
            None => {}
        }
    }
}

/// Parses a request; `None` if `bytes` are only its beginning.
fn parse(bytes: &[u8]) -> Option<Request> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut request = httparse::Request::new(&mut headers);
    match request.parse(bytes) {
        Ok(httparse::Status::Partial) => None,
        Ok(httparse::Status::Complete(_)) => {
            let path = request.path.map(|path| path.split('?').next().unwrap_or(path));
            let hosts = request.headers.iter().filter(|one| one.name.eq_ignore_ascii_case("host"));
            let is_local = hosts.map(|host| host.value).all(is_loopback);
            Some(match (request.method, path) {
                _ if !is_local => Request::ForeignHost,
                (Some("GET"), Some("/metrics")) => Request::Metrics,
                (Some("GET"), _) => Request::OtherPath,
                _ => Request::OtherMethod,
            })
        }
        Err(_) => Some(Request::Malformed),
    }
}

/// Whether a `Host` is a loopback address or `localhost`, with or without a port.
fn is_loopback(host: &[u8]) -> bool {
    let Ok(host) = str::from_utf8(host) else { return false };
    let host = host.trim();
    let bare = || host.trim_start_matches('[').trim_end_matches(']').parse::<IpAddr>();
    match host.parse::<SocketAddr>().map(|address| address.ip()).or_else(|_| bare()) {
        Ok(address) => address.is_loopback(),
        Err(_) => {
            let name = host.split_once(':').map_or(host, |(name, _)| name);
            name.eq_ignore_ascii_case("localhost")
        }
    }
}

/// Writes all of `bytes`.
///
/// # Errors
/// The client has gone, or did not take all bytes before `until`.
fn write_until(stream: &mut TcpStream, mut bytes: &[u8], until: Instant) -> io::Result<()> {
    while !bytes.is_empty() {
        stream.set_write_timeout(Some(time_left(until)?))?;
        match stream.write(bytes) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(written) => bytes = &bytes[written..],
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    Ok(())
}

/// The time left until `until`; never zero.
///
/// # Errors
/// `TimedOut`: the time is over.
fn time_left(until: Instant) -> io::Result<Duration> {
    let left = until.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(io::ErrorKind::TimedOut.into()) } else { Ok(left) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_loopback_addresses_are_accepted() {
        assert!(loopback("127.0.0.1:9435").is_ok() && loopback("[::1]:9435").is_ok());
        for text in ["0.0.0.0:9435", "192.0.2.1:9435", "[::]:9435", "127.0.0.1", "here", ""] {
            assert!(loopback(text).unwrap_err().contains("127.0.0.1:9435"), "{text}");
        }
    }

    #[test]
    fn a_web_page_that_resolves_to_loopback_is_refused() {
        let asked = |host: &str| parse(format!("GET /metrics HTTP/1.1\r\n{host}\r\n").as_bytes());
        let local = ["127.0.0.1:9435", "127.0.0.1", "[::1]:9435", "[::1]", "localhost:9435"];
        for host in local.map(|host| format!("host: {host}\r\n")) {
            assert_eq!(asked(&host), Some(Request::Metrics), "{host}");
        }
        // HTTP/1.0 needs no `Host`.
        assert_eq!(asked(""), Some(Request::Metrics));
        let foreign = ["evil.example:9435", "localhost.evil.example", "192.0.2.1", "", "\u{e9}"];
        for host in foreign.map(|host| format!("Host: {host}\r\n")) {
            assert_eq!(asked(&host), Some(Request::ForeignHost), "{host}");
        }
        let both = "Host: 127.0.0.1\r\nHost: evil.example\r\n";
        assert_eq!(asked(both), Some(Request::ForeignHost));
    }

    #[test]
    fn a_request_is_complete_partial_or_malformed() {
        let cases: [(&[u8], Option<Request>); 8] = [
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]\r\n\r\n", Some(Request::Metrics)),
            (b"GET /metrics?x=1 HTTP/1.0\r\n\r\n", Some(Request::Metrics)),
            (b"GET / HTTP/1.1\r\n\r\n", Some(Request::OtherPath)),
            (b"GET /metrics/.. HTTP/1.1\r\n\r\n", Some(Request::OtherPath)),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Some(Request::OtherMethod)),
            (b"GET /metrics HTTP/1.1\r\nHost: [::1]\r\n", None),
            (b"", None),
            (b"\x16\x03\x01\x02\x00\x01\x00", Some(Request::Malformed)),
        ];
        for (bytes, expected) in cases {
            assert_eq!(parse(bytes), expected, "{}", String::from_utf8_lossy(bytes));
        }
        let many = format!("GET /metrics HTTP/1.1\r\n{}\r\n", "a: b\r\n".repeat(HEADERS_MAX + 1));
        assert_eq!(parse(many.as_bytes()), Some(Request::Malformed));
    }
}
