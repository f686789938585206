//! Forwards queries for other names, if forwarders are configured. Only the id of a query is
//! replaced.

use super::codec::Transport;
use std::io;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpStream, UdpSocket};

/// Time limit for the answer of one forwarder.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(2);
const HEADER_BYTES: usize = 12;

/// Asks one forwarder after the other, in the given order, and returns the first answer.
pub(super) async fn ask(packet: &[u8], transport: Transport, forwarders: &[SocketAddr]) -> Option<Vec<u8>> {
    for forwarder in forwarders {
        let asking = async {
            match transport {
                Transport::Udp => by_udp(packet, *forwarder).await,
                Transport::Tcp => by_tcp(packet, *forwarder).await,
            }
        };
        match tokio::time::timeout(ANSWER_TIMEOUT, asking).await {
            Ok(Ok(answer)) => return Some(answer),
            Ok(Err(error)) => tracing::debug!(%error, %forwarder, "DNS: a forwarder failed"),
            Err(_) => tracing::debug!(%forwarder, "DNS: a forwarder does not answer"),
        }
    }
    None
}

/// Asks a forwarder by UDP, from a new port and with a new id, so that nobody can forge the answer
/// by guessing them.
async fn by_udp(packet: &[u8], forwarder: SocketAddr) -> io::Result<Vec<u8>> {
    let local: SocketAddr = match forwarder {
        SocketAddr::V4(_) => (Ipv4Addr::UNSPECIFIED, 0).into(),
        SocketAddr::V6(_) => (Ipv6Addr::UNSPECIFIED, 0).into(),
    };
    let socket = UdpSocket::bind(local).await?;
    socket.connect(forwarder).await?;
    let (own, question) = with_own_id(packet)?;
    socket.send(&question).await?;
    let mut buffer = vec![0; 65_535];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = &buffer[..length];
        if length >= HEADER_BYTES && answer[..2] == own && answer[2] & 0x80 != 0 {
            return Ok(with_id_of(answer, packet));
        }
    }
}

async fn by_tcp(packet: &[u8], forwarder: SocketAddr) -> io::Result<Vec<u8>> {
    let mut stream = TcpStream::connect(forwarder).await?;
    let (_, question) = with_own_id(packet)?;
    let length = u16::try_from(question.len()).map_err(|_| io::ErrorKind::InvalidInput)?;
    stream.write_all(&[&length.to_be_bytes()[..], &question].concat()).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    if answer.len() < HEADER_BYTES {
        return Err(io::ErrorKind::InvalidData.into());
    }
    Ok(with_id_of(&answer, packet))
}

fn with_own_id(packet: &[u8]) -> io::Result<([u8; 2], Vec<u8>)> {
    let own = ((etcd_session::jitter() * f64::from(u16::MAX)) as u16).to_be_bytes();
    let rest = packet.get(2..).ok_or(io::ErrorKind::InvalidInput)?;
    Ok((own, [&own[..], rest].concat()))
}

fn with_id_of(answer: &[u8], packet: &[u8]) -> Vec<u8> {
    let mut answer = answer.to_vec();
    answer[..2].copy_from_slice(&packet[..2]);
    answer
}
