//! An HTTP server by tokio and hyper beside a handler. `POST` writes its body into a stream, and
//! the handler reads the stream. `GET` returns the number of bytes that the handler has read. The
//! program is its own client.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use futures_util::AsyncWriteExt as _;
use futures_util::future::{Either, select};
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use newcomer::{Outcome, expect, print_notices};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Mutex;
use upcall::activity::ActivityParams;
use upcall::stream::{AsyncStreamWriter, IoPump, Stream, StreamForm};
use upcall::time::Span;
use upcall::{Config, Runtime, clock};

const POSTS: u64 = 50;
const BODY_BYTES: u64 = 3000;

fn main() -> Outcome {
    let mut upcall = Runtime::start(Config::default())?;
    print_notices(&upcall);
    let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: 1024 }, 0)?;
    let pump = IoPump::start()?;
    let writer = pump.writer(stream.writer()?)?;

    let bytes = Arc::new(AtomicU64::new(0));
    let counted = bytes.clone();
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(50)).batch(16);
    let samples = upcall.stream_reader_handler(
        "samples",
        need,
        stream.reader()?,
        1,
        move |reader, batch| {
            while let Some(message) = reader.next(batch) {
                counted.fetch_add(message.len() as u64, Ordering::Relaxed);
                message.done();
            }
        },
    )?;
    upcall.run(samples)?;

    let server = Server { writer: Arc::new(Mutex::new(writer)), bytes: bytes.clone() };
    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let shown = tokio.block_on(async {
        tokio::time::timeout(Duration::from_secs(4), server.serve_and_ask()).await?
    })?;
    let finished = upcall.wait(&[samples], Some(clock::after(Span::from_secs(2))));
    let report = upcall.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the handler did not yield")?;
    println!(
        "{POSTS} posts; the handler saw {} bytes in {} messages and {} jobs, {} of them late",
        bytes.load(Ordering::Relaxed),
        counters.pdus,
        counters.jobs,
        counters.misses,
    );
    println!("the server showed {shown} bytes");
    expect("handlers that finished", finished, vec![samples])?;
    expect("bytes at the handler", bytes.load(Ordering::Relaxed), POSTS * BODY_BYTES)?;
    expect("bytes that the server showed", shown, POSTS * BODY_BYTES)
}

/// What each connection needs.
#[derive(Clone)]
struct Server {
    writer: Arc<Mutex<AsyncStreamWriter>>,
    bytes: Arc<AtomicU64>,
}

impl Server {
    /// Serves on a port of the loopback, is its own client, and ends the stream.
    async fn serve_and_ask(self) -> Outcome<u64> {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        let writer = self.writer.clone();
        let shown = match select(pin!(self.serve(listener)), pin!(ask(address))).await {
            Either::Left((error, _)) => return Err(error.into()),
            Either::Right((shown, _)) => shown?,
        };
        writer.lock().await.close().await?;
        Ok(shown)
    }

    /// One connection after the other, until accepting fails.
    async fn serve(&self, listener: TcpListener) -> std::io::Error {
        loop {
            let connection = match listener.accept().await {
                Ok((connection, _)) => TokioIo::new(connection),
                Err(error) => return error,
            };
            let service = service_fn(|request| self.answer(request));
            let served = hyper::server::conn::http1::Builder::new()
                .serve_connection(connection, service)
                .await;
            if let Err(error) = served {
                eprintln!("a connection failed: {error}");
            }
        }
    }

    async fn answer(
        &self,
        request: Request<Incoming>,
    ) -> Result<Response<Full<Bytes>>, Infallible> {
        let result = match *request.method() {
            Method::POST => self.post(request).await,
            _ => Ok(self.bytes.load(Ordering::Relaxed).to_string()),
        };
        let (status, text) = match result {
            Ok(text) => (StatusCode::OK, text),
            Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()),
        };
        let mut response = Response::new(Full::new(Bytes::from(text)));
        *response.status_mut() = status;
        Ok(response)
    }

    async fn post(&self, request: Request<Incoming>) -> Outcome<String> {
        let body = request.into_body().collect().await?.to_bytes();
        self.writer.lock().await.write_all(&body).await?; // waits while the stream is full
        Ok(String::new())
    }
}

/// Sends the posts, then asks until the handler has read all bytes. Returns the last answer.
async fn ask(address: SocketAddr) -> Outcome<u64> {
    let body = "x".repeat(BODY_BYTES as usize);
    for _ in 0..POSTS {
        exchange(address, "POST", &body).await?;
    }
    loop {
        let shown = exchange(address, "GET", "").await?.parse()?;
        if shown >= POSTS * BODY_BYTES {
            return Ok(shown);
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Sends one request on a connection of its own. Returns the body of the answer.
async fn exchange(address: SocketAddr, method: &str, body: &str) -> Outcome<String> {
    let mut connection = TcpStream::connect(address).await?;
    let request = format!(
        "{method} / HTTP/1.1\r\nhost: newcomer\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len(),
    );
    connection.write_all(request.as_bytes()).await?;
    connection.write_all(body.as_bytes()).await?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer).await?;
    match answer.split_once("\r\n\r\n") {
        Some((head, body)) if head.starts_with("HTTP/1.1 200 ") => Ok(body.to_owned()),
        _ => Err(format!("unexpected answer: {answer}").into()),
    }
}
