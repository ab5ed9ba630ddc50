//! From a request's path to the method that answers it.

use std::convert::Infallible;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tonic::body::Body;
use tonic::server::{Grpc, StreamingService, UnaryService};
use tonic::{Request, Response, Status, Streaming};
use tonic_prost::ProstCodec;
use tower::Service;

use super::{ServeOptions, Shared, kv, lease, maintenance, watch};

type Answer<T> = Pin<Box<dyn Future<Output = Result<T, Status>> + Send>>;

/// The service of every connection.
#[derive(Clone)]
pub(super) struct Router {
    shared: Shared,
}

impl Router {
    pub(super) fn new(shared: Shared) -> Self {
        Router { shared }
    }

    pub(super) fn options(&self) -> &ServeOptions {
        &self.shared.options
    }

    async fn route(self, request: http::Request<Body>) -> http::Response<Body> {
        let path = request.uri().path().to_owned();
        match path.as_str() {
            "/etcdserverpb.KV/Range" => self.unary(kv::range, request).await,
            "/etcdserverpb.KV/Put" => self.unary(kv::put, request).await,
            "/etcdserverpb.KV/DeleteRange" => self.unary(kv::delete_range, request).await,
            "/etcdserverpb.KV/Txn" => self.unary(kv::txn, request).await,
            "/etcdserverpb.KV/Compact" => self.unary(kv::compact, request).await,
            "/etcdserverpb.Watch/Watch" => self.streaming(watch::serve, request).await,
            "/etcdserverpb.Lease/LeaseGrant" => self.unary(lease::grant, request).await,
            "/etcdserverpb.Lease/LeaseRevoke" => self.unary(lease::revoke, request).await,
            "/etcdserverpb.Lease/LeaseKeepAlive" => {
                self.streaming(lease::keep_alive, request).await
            }
            "/etcdserverpb.Lease/LeaseTimeToLive" => self.unary(lease::time_to_live, request).await,
            "/etcdserverpb.Lease/LeaseLeases" => self.unary(lease::leases, request).await,
            "/etcdserverpb.Maintenance/Status" => self.unary(maintenance::status, request).await,
            "/etcdserverpb.Maintenance/Alarm" => self.unary(maintenance::alarm, request).await,
            "/etcdserverpb.Maintenance/Defragment" => {
                self.unary(maintenance::defragment, request).await
            }
            "/etcdserverpb.Cluster/MemberList" => {
                self.unary(maintenance::member_list, request).await
            }
            path => Status::unimplemented(format!("this store does not offer {path}")).into_http(),
        }
    }

    async fn unary<Q, A, F>(
        self,
        method: fn(Shared, Q) -> F,
        request: http::Request<Body>,
    ) -> http::Response<Body>
    where
        Q: prost::Message + Default + Send + 'static,
        A: prost::Message + Default + Send + 'static,
        F: Future<Output = Result<A, Status>> + Send + 'static,
    {
        let method = Unary {
            shared: self.shared.clone(),
            method,
        };
        self.grpc::<A, Q>().unary(method, request).await
    }

    async fn streaming<Q, S>(
        self,
        method: fn(Shared, Streaming<Q>) -> S,
        request: http::Request<Body>,
    ) -> http::Response<Body>
    where
        Q: prost::Message + Default + Send + 'static,
        S: Outgoing + Send + 'static,
        S::Message: prost::Message + Default + Send + 'static,
    {
        let method = Stream {
            shared: self.shared.clone(),
            method,
        };
        self.grpc::<S::Message, Q>()
            .streaming(method, request)
            .await
    }

    fn grpc<A, Q>(&self) -> Grpc<ProstCodec<A, Q>>
    where
        A: prost::Message + Send + 'static,
        Q: prost::Message + Default + Send + 'static,
    {
        Grpc::new(ProstCodec::new())
            .max_decoding_message_size(self.shared.options.max_message)
            // A range is as large as what it was asked for.
            .max_encoding_message_size(usize::MAX)
    }
}

impl Service<http::Request<Body>> for Router {
    type Response = http::Response<Body>;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Self::Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: http::Request<Body>) -> Self::Future {
        let router = self.clone();
        Box::pin(async move { Ok(router.route(request).await) })
    }
}

/// A method that answers one message with one.
struct Unary<Q, F> {
    shared: Shared,
    method: fn(Shared, Q) -> F,
}

impl<Q, A, F> UnaryService<Q> for Unary<Q, F>
where
    F: Future<Output = Result<A, Status>> + Send + 'static,
{
    type Response = A;
    type Future = Answer<Response<A>>;

    fn call(&mut self, request: Request<Q>) -> Self::Future {
        let answer = (self.method)(self.shared.clone(), request.into_inner());
        Box::pin(async move { Ok(Response::new(answer.await?)) })
    }
}

/// What a streaming method answers with.
pub(super) trait Outgoing: futures::Stream<Item = Result<Self::Message, Status>> {
    /// One message of it.
    type Message;
}

impl<S: futures::Stream<Item = Result<A, Status>>, A> Outgoing for S {
    type Message = A;
}

/// A method that answers a stream with a stream.
struct Stream<Q, S> {
    shared: Shared,
    method: fn(Shared, Streaming<Q>) -> S,
}

impl<Q, S> StreamingService<Q> for Stream<Q, S>
where
    S: Outgoing + Send + 'static,
{
    type Response = S::Message;
    type ResponseStream = S;
    type Future = Answer<Response<S>>;

    fn call(&mut self, request: Request<Streaming<Q>>) -> Self::Future {
        let answer = (self.method)(self.shared.clone(), request.into_inner());
        Box::pin(async move { Ok(Response::new(answer)) })
    }
}
