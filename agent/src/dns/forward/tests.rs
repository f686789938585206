//! Tests with forwarders that are slow, silent, wrong or malicious, on this machine.

use super::*;
use hickory_proto::op::{Message, MessageType, OpCode, Query, ResponseCode};
use hickory_proto::rr::rdata::A;
use hickory_proto::rr::{DNSClass, Name, RData, Record, RecordType};
use std::sync::atomic::{AtomicUsize, Ordering};
use tokio::net::TcpListener;

const NAME: &str = "www.example.org.";

/// What a forwarder sends back for a query, in this order.
type Behaviour = fn(&Message) -> Vec<Message>;

fn answered(query: &Message, code: ResponseCode, address: [u8; 4]) -> Message {
    let mut message = Message::new(query.metadata.id, MessageType::Response, query.metadata.op_code);
    message.metadata.recursion_desired = true;
    message.metadata.recursion_available = true;
    message.metadata.response_code = code;
    message.queries = query.queries.clone();
    if code == ResponseCode::NoError {
        message.answers =
            vec![Record::from_rdata(query.queries[0].name().clone(), 5, RData::A(A(address.into())))];
    }
    message
}

fn good(query: &Message) -> Vec<Message> {
    vec![answered(query, ResponseCode::NoError, [192, 0, 2, 1])]
}

fn silent(_: &Message) -> Vec<Message> {
    Vec::new()
}

/// A forwarder that counts the queries that it got. It serves UDP and TCP on one port.
struct Bad {
    address: SocketAddr,
    count: Arc<AtomicUsize>,
    behaviour: Arc<Mutex<Behaviour>>,
}

impl Bad {
    async fn start(behaviour: Behaviour) -> Self {
        let tcp = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = tcp.local_addr().unwrap();
        let udp = UdpSocket::bind(address).await.unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let behaviour = Arc::new(Mutex::new(behaviour));
        let (counter, act) = (count.clone(), behaviour.clone());
        tokio::spawn(async move {
            let mut buffer = vec![0; 4096];
            loop {
                let (length, client) = udp.recv_from(&mut buffer).await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                let act = *act.lock().unwrap();
                for message in act(&Message::from_vec(&buffer[..length]).unwrap()) {
                    udp.send_to(&message.to_vec().unwrap(), client).await.unwrap();
                }
            }
        });
        let (counter, act) = (count.clone(), behaviour.clone());
        tokio::spawn(async move {
            loop {
                let (mut stream, _) = tcp.accept().await.unwrap();
                let length = stream.read_u16().await.unwrap();
                let mut query = vec![0; usize::from(length)];
                stream.read_exact(&mut query).await.unwrap();
                counter.fetch_add(1, Ordering::SeqCst);
                let act = *act.lock().unwrap();
                for message in act(&Message::from_vec(&query).unwrap()) {
                    let bytes = message.to_vec().unwrap();
                    stream.write_u16(u16::try_from(bytes.len()).unwrap()).await.unwrap();
                    stream.write_all(&bytes).await.unwrap();
                }
                // The connection stays open, so that a silent forwarder is one.
                tokio::spawn(async move { drop(stream.read_u8().await) });
            }
        });
        Self { address, count, behaviour }
    }

    fn queries(&self) -> usize {
        self.count.load(Ordering::SeqCst)
    }

    fn becomes(&self, behaviour: Behaviour) {
        *self.behaviour.lock().unwrap() = behaviour;
    }
}

fn query() -> Vec<u8> {
    let mut message = Message::new(4711, MessageType::Query, OpCode::Query);
    message.metadata.recursion_desired = true;
    message.add_query(Query::query(Name::from_ascii(NAME).unwrap(), RecordType::A));
    message.to_vec().unwrap()
}

async fn ask(forwarders: &Forwarders, transport: Transport) -> Option<Message> {
    let bytes = forwarders.ask(&query(), transport).await?;
    let message = Message::from_vec(&bytes).unwrap();
    assert_eq!(message.metadata.id, 4711, "the answer has the id of the client");
    Some(message)
}

const BOTH: [Transport; 2] = [Transport::Udp, Transport::Tcp];

#[tokio::test]
async fn the_next_forwarder_is_asked_when_one_says_that_it_has_no_answer() {
    let failing: [Behaviour; 6] = [
        |query| vec![answered(query, ResponseCode::ServFail, [0; 4])],
        |query| vec![answered(query, ResponseCode::Refused, [0; 4])],
        |query| vec![answered(query, ResponseCode::NotImp, [0; 4])],
        |query| vec![answered(query, ResponseCode::FormErr, [0; 4])],
        // It did not read the query.
        |query| vec![Message::error_msg(query.metadata.id, OpCode::Query, ResponseCode::FormErr)],
        // A referral to itself.
        |query| {
            let mut message = answered(query, ResponseCode::NoError, [0; 4]);
            message.answers.clear();
            message.metadata.recursion_available = false;
            vec![message]
        },
    ];
    for (number, behaviour) in failing.into_iter().enumerate() {
        for transport in BOTH {
            let (first, second) = (Bad::start(behaviour).await, Bad::start(good).await);
            let forwarders = Forwarders::new(&[first.address, second.address]);
            let began = Instant::now();
            for _ in 0..3 {
                let answer = ask(&forwarders, transport).await.unwrap();
                assert_eq!(answer.metadata.response_code, ResponseCode::NoError, "{number} {transport:?}");
                assert_eq!(answer.answers.len(), 1, "{number} {transport:?}");
            }
            // It answers, so it does not rest: another name may be one that it knows.
            assert_eq!((first.queries(), second.queries()), (3, 3), "{number} {transport:?}");
            assert!(began.elapsed() < NEXT_AFTER * 3, "{number} {transport:?}: {:?}", began.elapsed());
        }
    }
}

#[tokio::test(start_paused = true)]
async fn one_query_without_an_answer_is_one_miss_however_long_it_is_waited_for() {
    for transport in BOTH {
        let silent = Bad::start(silent).await;
        let forwarders = Forwarders::new(&[silent.address]);
        let all = if transport == Transport::Udp { &forwarders.udp } else { &forwarders.tcp };
        let health = || *all[0].health.lock().unwrap();
        for rests in 1..=2 {
            assert!(ask(&forwarders, transport).await.is_none(), "{transport:?}");
            // The attempt ends with the client, or a moment later.
            tokio::time::sleep(FIRST_REST).await;
            assert_eq!((health().rests, health().is_silent()), (rests, rests > 1), "{transport:?}");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn what_waits_for_a_place_ends_with_its_client() {
    let first = Bad::start(silent).await;
    let forwarders = Forwarders::new(&[first.address]);
    let tasks = || tokio::runtime::Handle::current().metrics().num_alive_tasks();
    let own = tasks();
    // Other queries have all places, and keep them.
    let places = u32::try_from(ATTEMPTS_MAX).unwrap();
    let _places = forwarders.attempts.clone().acquire_many_owned(places).await.unwrap();
    for transport in BOTH {
        for _ in 0..3 {
            assert!(ask(&forwarders, transport).await.is_none());
        }
    }
    tokio::time::sleep(FIRST_REST).await;
    assert_eq!((tasks(), first.queries()), (own, 0), "tasks that wait for nobody");
}

#[tokio::test]
async fn a_name_that_does_not_exist_is_an_answer_and_a_failure_of_all_is_passed_on() {
    let absent: Behaviour = |query| vec![answered(query, ResponseCode::NXDomain, [0; 4])];
    let failed: Behaviour = |query| vec![answered(query, ResponseCode::ServFail, [0; 4])];
    let refused: Behaviour = |query| vec![answered(query, ResponseCode::Refused, [0; 4])];
    for transport in BOTH {
        let (first, second) = (Bad::start(absent).await, Bad::start(good).await);
        let answer = ask(&Forwarders::new(&[first.address, second.address]), transport).await.unwrap();
        assert_eq!((answer.metadata.response_code, second.queries()), (ResponseCode::NXDomain, 0));
        let (first, second) = (Bad::start(failed).await, Bad::start(refused).await);
        let answer = ask(&Forwarders::new(&[first.address, second.address]), transport).await.unwrap();
        assert_eq!((answer.metadata.response_code, second.queries()), (ResponseCode::ServFail, 1));
    }
}

#[tokio::test]
async fn a_silent_forwarder_delays_one_query_rests_and_is_used_again_when_it_answers() {
    for transport in BOTH {
        let (first, second) = (Bad::start(silent).await, Bad::start(good).await);
        let forwarders = Forwarders::new(&[first.address, second.address]);
        let began = Instant::now();
        assert!(ask(&forwarders, transport).await.is_some());
        assert!(began.elapsed() >= NEXT_AFTER && began.elapsed() < TOTAL_TIMEOUT, "{:?}", began.elapsed());
        // Nobody waits for it any more, also while it is asked again from time to time.
        let mut times = Vec::new();
        while began.elapsed() < FIRST_REST * 3 {
            let began_at = Instant::now();
            assert!(ask(&forwarders, transport).await.is_some());
            times.push(began_at.elapsed());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        times.sort();
        assert!(times[times.len() * 9 / 10] < NEXT_AFTER, "{transport:?}: {times:?}");
        first.becomes(good);
        let deadline = Instant::now() + Duration::from_secs(30);
        let mut before = second.queries();
        loop {
            assert!(Instant::now() < deadline, "{transport:?}: the first forwarder is never used again");
            assert!(ask(&forwarders, transport).await.is_some());
            if second.queries() == before {
                break;
            }
            before = second.queries();
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }
}

#[tokio::test]
async fn if_all_are_silent_the_client_is_told_before_it_gives_up() {
    for transport in BOTH {
        let (first, second) = (Bad::start(silent).await, Bad::start(silent).await);
        let forwarders = Forwarders::new(&[first.address, second.address]);
        for _ in 0..2 {
            let began = Instant::now();
            assert!(ask(&forwarders, transport).await.is_none());
            assert!(began.elapsed() < Duration::from_secs(5), "{transport:?}: {:?}", began.elapsed());
        }
    }
    // A port where nobody listens says so at once.
    let free = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let address = free.local_addr().unwrap();
    drop(free);
    let second = Bad::start(good).await;
    for transport in BOTH {
        let mut times = Vec::new();
        for _ in 0..5 {
            let began = Instant::now();
            assert!(ask(&Forwarders::new(&[address, second.address]), transport).await.is_some());
            times.push(began.elapsed());
        }
        // All of them would wait.
        assert!(times.iter().any(|time| *time < NEXT_AFTER), "{transport:?}: {times:?}");
    }
}

#[tokio::test]
async fn what_is_no_answer_to_the_query_is_never_passed_on() {
    let forged: [(&str, Behaviour); 6] = [
        ("another id", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.metadata.id = message.metadata.id.wrapping_add(1);
            vec![message]
        }),
        ("another name", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.queries[0].set_name(Name::from_ascii("www.example.com.").unwrap());
            vec![message]
        }),
        ("another type", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.queries[0].set_query_type(RecordType::AAAA);
            vec![message]
        }),
        ("another class", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.queries[0].set_query_class(DNSClass::CH);
            vec![message]
        }),
        ("no question", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.queries.clear();
            vec![message]
        }),
        ("a query", |query| {
            let mut message = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
            message.metadata.message_type = MessageType::Query;
            vec![message]
        }),
    ];
    for (what, behaviour) in forged {
        for transport in BOTH {
            let (first, second) = (Bad::start(behaviour).await, Bad::start(good).await);
            let answer = ask(&Forwarders::new(&[first.address, second.address]), transport).await.unwrap();
            assert_eq!(answer.answers[0].data, RData::A(A([192, 0, 2, 1].into())), "{what} {transport:?}");
        }
    }
    // By UDP the real answer may come after a forged one; names are compared without case.
    let late: Behaviour = |query| {
        let mut forged = answered(query, ResponseCode::NoError, [192, 0, 2, 66]);
        forged.metadata.id = forged.metadata.id.wrapping_add(1);
        let mut real = answered(query, ResponseCode::NoError, [192, 0, 2, 1]);
        real.queries[0].set_name(Name::from_ascii("WWW.Example.ORG.").unwrap());
        vec![forged, real]
    };
    let only = Bad::start(late).await;
    let answer = ask(&Forwarders::new(&[only.address]), Transport::Udp).await.unwrap();
    assert_eq!(answer.answers[0].data, RData::A(A([192, 0, 2, 1].into())));
}

#[tokio::test]
async fn each_query_has_an_id_and_a_port_of_its_own() {
    let seen: Arc<Mutex<std::collections::BTreeSet<(u16, u16)>>> = Arc::default();
    let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
    let forwarders = Forwarders::new(&[socket.local_addr().unwrap()]);
    let record = seen.clone();
    tokio::spawn(async move {
        let mut buffer = vec![0; 4096];
        loop {
            let (length, client) = socket.recv_from(&mut buffer).await.unwrap();
            let query = Message::from_vec(&buffer[..length]).unwrap();
            record.lock().unwrap().insert((query.metadata.id, client.port()));
            socket.send_to(&good(&query)[0].to_vec().unwrap(), client).await.unwrap();
        }
    });
    for _ in 0..20 {
        assert!(ask(&forwarders, Transport::Udp).await.is_some());
    }
    let seen = seen.lock().unwrap();
    let ids: std::collections::BTreeSet<u16> = seen.iter().map(|(id, _)| *id).collect();
    let ports: std::collections::BTreeSet<u16> = seen.iter().map(|(_, port)| *port).collect();
    assert!(ids.len() > 15 && ports.len() > 10, "{seen:?}");
}

#[test]
fn rests_grow_to_half_a_minute_and_end_with_an_answer() {
    let begin = Instant::now();
    let mut health = Health::default();
    assert_eq!(health.choose(begin), Use::InOrder);
    health.missed(begin);
    // Other queries that were on their way do not make the rest longer.
    health.missed(begin);
    assert_eq!(health.choose(begin), Use::Rests);
    let mut now = begin;
    let mut rests = Vec::new();
    for _ in 0..8 {
        let until = health.rests_until.unwrap();
        rests.push((until - now).as_secs());
        now = until;
        assert_eq!(health.choose(now), Use::Probe);
        assert_eq!(health.choose(now), Use::Rests);
    }
    assert_eq!(rests, [1, 2, 4, 8, 16, 30, 30, 30]);
    assert!(health.is_silent());
}
