//! Upcall beside tokio and hyper in one program: an HTTP server feeds a handler and shows its
//! counters.
//!
//! ```sh
//! cargo run --release -p upcall --example beside_tokio
//! ```
//!
//! ```text
//!   tokio, ordinary thread                 upcall-io-pump        upcall-cpuN, SCHED_FIFO
//!   POST /samples --> AsyncStreamWriter ============ stream ============> handler "samples"
//!                       (waits for room; the I/O pump wakes it)          |
//!   GET /counters <-------------------- atomic counters <--------------+
//! ```
//!
//! tokio runs the connections, Upcall runs the handler. Neither blocks the other: bytes go through
//! a stream, and counters come back through atomics. The scheduling thread precedes tokio on its
//! CPU, and admission leaves at least 10 % of it to threads such as tokio's.
//!
//! A thread acts as the HTTP client. It sends 20 posts of 100 bytes, each byte a 1. The program
//! prints the address of the server, the last answer, `bytes 2000, sum 2000`, and then the counters
//! of the handler: `handler: jobs 5, missed 0`. One job may take several posts, at most 16, so the
//! number of jobs varies.

use std::error::Error;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use futures_util::AsyncWriteExt;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::sync::Mutex;
use upcall::activity::ActivityParams;
use upcall::stream::{AsyncStreamWriter, IoPump, Stream, StreamForm, StreamReader};
use upcall::time::Span;
use upcall::{Batch, Config, Runtime};

const POSTS: usize = 20;
const POST_BYTES: usize = 100;
/// A longer post is split into several messages.
const MESSAGE_BYTES: u32 = 1024;

/// Errors that may cross threads.
type AnyError = Box<dyn Error + Send + Sync>;

fn main() -> Result<(), AnyError> {
    let mut upcall = Runtime::start(Config::default())?;
    for notice in upcall.notices() {
        eprintln!("{notice}");
    }
    let stream = Stream::create(StreamForm::Slots { slots: 64, slot_bytes: MESSAGE_BYTES }, 0)?;
    // The I/O pump's thread wakes tokio's tasks when there is room in the stream.
    let pump = IoPump::start()?;
    let writer = pump.writer(stream.writer()?)?;

    // Every 5 ms at most 16 messages, each of at most 20 us.
    let need = ActivityParams::new(Span::from_millis(5), Span::from_micros(20)).batch(16);
    let counters = Arc::new(Counters::default());
    let counted = counters.clone();
    let mut block = [0; MESSAGE_BYTES as usize];
    let samples = upcall.stream_reader_handler(
        "samples",
        need,
        stream.reader()?,
        1,
        move |reader, batch| {
            add_up(reader, batch, &mut block, &counted);
        },
    )?;
    upcall.run(samples)?;

    let tokio = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let last_answer = tokio.block_on(async {
        let listener = TcpListener::bind("127.0.0.1:0").await?;
        let address = listener.local_addr()?;
        println!("http://{address}/counters");
        let server = tokio::spawn(serve(listener, Arc::new(Mutex::new(writer)), counters));
        let answer = tokio::task::spawn_blocking(move || client(address)).await?;
        server.abort();
        answer
    })?;
    println!("{last_answer}");
    // The writer is dropped, which ends the stream. The handler finds the end and is finished.
    drop(tokio);
    upcall.wait(&[samples], None);
    let report = upcall.stop(|_, _| {});
    let counters = report.activities[0].counters.ok_or("the handler did not yield")?;
    println!("handler: jobs {}, missed {}", counters.completed, counters.misses);
    Ok(())
}

/// The counters that the handler writes and the server reads.
#[derive(Default)]
struct Counters {
    bytes: AtomicU64,
    sum: AtomicU64,
}

/// One upcall of the handler: no lock, no allocation, no system call.
fn add_up(reader: &mut StreamReader, batch: &mut Batch<'_>, block: &mut [u8], counters: &Counters) {
    while let Some(message) = reader.next(batch) {
        let len = message.payload().copy_to(0, block);
        message.done();
        let sum: u64 = block[..len].iter().copied().map(u64::from).sum();
        counters.sum.fetch_add(sum, Ordering::Relaxed);
        // Release pairs with the Acquire in `answer`, so that `sum` includes these bytes there.
        counters.bytes.fetch_add(len as u64, Ordering::Release);
    }
}

/// Serves connections until it is aborted.
async fn serve(
    listener: TcpListener,
    writer: Arc<Mutex<AsyncStreamWriter>>,
    counters: Arc<Counters>,
) -> std::io::Result<()> {
    loop {
        let (connection, _) = listener.accept().await?;
        let (writer, counters) = (writer.clone(), counters.clone());
        tokio::spawn(async move {
            let service = service_fn(|request| answer(request, &writer, &counters));
            let served = http1::Builder::new().serve_connection(TokioIo::new(connection), service);
            if let Err(error) = served.await {
                eprintln!("connection: {error}");
            }
        });
    }
}

/// Answers one request.
async fn answer(
    request: Request<Incoming>,
    writer: &Mutex<AsyncStreamWriter>,
    counters: &Counters,
) -> Result<Response<Full<Bytes>>, AnyError> {
    let (status, text) = match (request.method(), request.uri().path()) {
        (&Method::POST, "/samples") => {
            let body = request.into_body().collect().await?.to_bytes();
            // Waits while the stream is full. Meanwhile tokio serves other connections.
            writer.lock().await.write_all(&body).await?;
            (StatusCode::ACCEPTED, String::new())
        }
        (&Method::GET, "/counters") => {
            let bytes = counters.bytes.load(Ordering::Acquire);
            let sum = counters.sum.load(Ordering::Relaxed);
            (StatusCode::OK, format!("bytes {bytes}, sum {sum}"))
        }
        _ => (StatusCode::NOT_FOUND, String::new()),
    };
    let mut response = Response::new(Full::new(Bytes::from(text)));
    *response.status_mut() = status;
    Ok(response)
}

/// Posts samples, then requests the counters until they include all samples. Returns the last
/// answer.
fn client(address: SocketAddr) -> Result<String, AnyError> {
    for _ in 0..POSTS {
        ask(address, "POST /samples", &[1; POST_BYTES])?;
    }
    let all = format!("bytes {} ", POSTS * POST_BYTES);
    // The handler processes the samples within milliseconds.
    for _ in 0..500 {
        let answer = ask(address, "GET /counters", &[])?;
        if answer.replace(',', " ").starts_with(&all) {
            return Ok(answer);
        }
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Err("the handler did not get all samples within 5 s".into())
}

/// Sends one request on a connection of its own. Returns the body of the answer.
fn ask(address: SocketAddr, what: &str, body: &[u8]) -> Result<String, AnyError> {
    let mut connection = TcpStream::connect(address)?;
    let len = body.len();
    write!(
        connection,
        "{what} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\nContent-Length: {len}\r\n\r\n"
    )?;
    connection.write_all(body)?;
    let mut answer = String::new();
    connection.read_to_string(&mut answer)?;
    let (head, body) = answer.split_once("\r\n\r\n").ok_or("no HTTP answer")?;
    if head.starts_with("HTTP/1.1 2") { Ok(body.to_owned()) } else { Err(head.into()) }
}
