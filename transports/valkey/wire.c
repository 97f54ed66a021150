/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The bytes of a connection: as they are, or by TLS.  hiredis makes the connection and speaks TLS with
 * the OpenSSL object that it is given here, so that the server's certificate is checked against the
 * system's authorities (or SSL_CERT_FILE) and against the host's name, which hiredis alone does not.
 * Later the object is used without hiredis, so blocks are not copied into its buffers.  Called by
 * connect.c and command.c, on the server's thread, which blocks SIGPIPE. */
#include "internal.h"

#include <errno.h>
#include <stdio.h>
#include <sys/socket.h>

#ifdef USM_VALKEY_HAS_TLS

#include <arpa/inet.h>
#include <hiredis/hiredis_ssl.h>
#include <limits.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>

usm_status usm_valkey_tls_init(usm_valkey_store *s)
{
    if (!s->config.tls)
        return USM_OK;
    s->tls = SSL_CTX_new(TLS_client_method());
    if (!s->tls)
        return s->api->report(USM_E_NO_MEMORY, "no memory for TLS");
    (void)SSL_CTX_set_min_proto_version(s->tls, TLS1_2_VERSION);
    (void)SSL_CTX_set_default_verify_paths(s->tls);
    SSL_CTX_set_verify(s->tls, SSL_VERIFY_PEER, NULL);
    /* What was not sent wholly is sent again from another place of the batch. */
    (void)SSL_CTX_set_mode(s->tls,
                           SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
    return USM_OK;
}

void usm_valkey_tls_fini(usm_valkey_store *s)
{
    SSL_CTX_free(s->tls);
    s->tls = NULL;
}

/* The certificate must be the host's, which is a name or an address. */
static bool expect_host(SSL *ssl, const char *host)
{
    unsigned char address[16];

    if (inet_pton(AF_INET, host, address) == 1 || inet_pton(AF_INET6, host, address) == 1)
        return X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(ssl), host) == 1;
    return SSL_set1_host(ssl, host) == 1 && SSL_set_tlsext_host_name(ssl, host) == 1;
}

static const char *remedy_for(long verdict)
{
    switch (verdict) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
    case X509_V_ERR_CERT_NOT_YET_VALID:
        return "renew it, or set the clock of this machine";
    case X509_V_ERR_HOSTNAME_MISMATCH:
    case X509_V_ERR_IP_ADDRESS_MISMATCH:
        return "name the server as its certificate does";
    default:
        return "SSL_CERT_FILE names the authorities that are trusted";
    }
}

/* Why there was no handshake, from the verdict on the certificate and OpenSSL's queue of errors. */
static void explain(usm_valkey_server *v, long verdict)
{
    const char *reason = ERR_reason_error_string(ERR_peek_last_error());

    if (verdict != X509_V_OK)
        (void)snprintf(v->why, sizeof(v->why), "TLS: %.100s; %s",
                       X509_verify_cert_error_string(verdict), remedy_for(verdict));
    else
        (void)snprintf(
            v->why, sizeof(v->why),
            "TLS: %.100s; it may not speak TLS on this port: name its tls-port, or leave "
            "out tls",
            reason ? reason : "the handshake failed");
}

bool usm_valkey_tls_begin(usm_valkey_server *v, const char *host)
{
    SSL *ssl = SSL_new(v->store->tls);

    ERR_clear_error();
    if (ssl && expect_host(ssl, host) && redisInitiateSSL(v->link, ssl) == REDIS_OK) {
        v->ssl = ssl; /* the link's from now on */
        return true;
    }
    explain(v, ssl ? SSL_get_verify_result(ssl) : X509_V_OK);
    SSL_free(ssl);
    return false;
}

/* As the system calls: bytes, 0 at the end, -1 with errno. */
static ssize_t result_of(SSL *ssl, int n)
{
    const int error = n > 0 ? SSL_ERROR_NONE : SSL_get_error(ssl, n);

    if (n > 0)
        return n;
    if (error == SSL_ERROR_ZERO_RETURN)
        return 0;
    if (error == SSL_ERROR_WANT_READ || error == SSL_ERROR_WANT_WRITE)
        errno = EAGAIN;
    else if (error != SSL_ERROR_SYSCALL || errno == 0)
        errno = EPROTO;
    return -1;
}

static int clip(size_t size)
{
    return size < INT_MAX ? (int)size : INT_MAX;
}

static ssize_t tls_send(usm_valkey_server *v, const struct iovec *part)
{
    ERR_clear_error();
    errno = 0;
    return result_of(v->ssl, SSL_write(v->ssl, part->iov_base, clip(part->iov_len)));
}

static ssize_t tls_receive(usm_valkey_server *v, const struct iovec *part)
{
    ERR_clear_error();
    errno = 0;
    return result_of(v->ssl, SSL_read(v->ssl, part->iov_base, clip(part->iov_len)));
}

#else

usm_status usm_valkey_tls_init(usm_valkey_store *s)
{
    if (!s->config.tls)
        return USM_OK;
    return s->api->report(USM_E_NOT_SUPPORTED,
                          "the transport valkey was built without TLS, which hiredis has from "
                          "version 1.0 on (Debian 13): use a socket's path, loopback or a tunnel");
}

void usm_valkey_tls_fini(usm_valkey_store *s)
{
    (void)s;
}

bool usm_valkey_tls_begin(usm_valkey_server *v, const char *host)
{
    (void)host; /* a store that wants TLS was refused */
    (void)snprintf(v->why, sizeof(v->why), "there is no TLS");
    return false;
}

#endif

ssize_t usm_valkey_send(usm_valkey_server *v, struct iovec *parts, unsigned n)
{
    const struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};

#ifdef USM_VALKEY_HAS_TLS
    if (v->ssl)
        return tls_send(v, parts);
#endif
    return sendmsg(v->link->fd, &m, MSG_NOSIGNAL);
}

ssize_t usm_valkey_recv(usm_valkey_server *v, struct iovec *parts, unsigned n)
{
    struct msghdr m = {.msg_iov = parts, .msg_iovlen = n};

#ifdef USM_VALKEY_HAS_TLS
    if (v->ssl)
        return tls_receive(v, parts);
#endif
    return recvmsg(v->link->fd, &m, 0);
}

bool usm_valkey_has_more(const usm_valkey_server *v)
{
#ifdef USM_VALKEY_HAS_TLS
    return v->ssl && SSL_pending(v->ssl) > 0;
#else
    (void)v;
    return false;
#endif
}
