/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The transport over a Valkey or Redis server that speaks TLS: what every transport does, and servers that
 * cannot be trusted, which are refused by name.  Certificates are made by the program openssl, in the
 * folder of the test.  Where hiredis has no TLS (Debian 12) that is what is said. */
#include "transport_suite.h"
#include "valkey_fixture.h"

static server s;
static int    tls_port;

/* ---- certificates ----------------------------------------------------------------------- */

#define BY_US " -CA ours.crt -CAkey ours.key -subj /CN=server"
#define NOW   " -days 2"
#define HERE  " -addext subjectAltName=IP:127.0.0.1"

/* Makes NAME.key and NAME.crt; false: openssl cannot. */
static bool certify(const char *name, const char *more)
{
    char command[1024];

    (void)snprintf(command, sizeof(command),
                   "cd '%s' && openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 "
                   "-nodes -keyout %s.key -out %s.crt %s >openssl.log 2>&1",
                   plain.folder, name, name, more);
    return system(command) == 0;
}

/* Whose certificates the module believes. */
static void trust(const char *name)
{
    char path[300];

    (void)snprintf(path, sizeof(path), "%s/%s.crt", plain.folder, name);
    CHECK(setenv("SSL_CERT_FILE", path, 1) == 0);
}

/* What the server shows to new connections. */
static void present(const char *name)
{
    char command[700];

    (void)snprintf(command, sizeof(command),
                   "CONFIG SET tls-cert-file %s/%s.crt tls-key-file %s/%s.key", plain.folder, name,
                   plain.folder, name);
    CHECK_IN("+OK", server_say(&s, command));
}

/* Two authorities, and a server with a certificate of the first.  Returns why there can be none. */
static const char *tls_server(void)
{
    char options[2048];

    (void)plain_path(""); /* makes the folder */
    if (!certify("ours", "-subj /CN=ours" NOW) || !certify("theirs", "-subj /CN=theirs" NOW) ||
        !certify("good", BY_US NOW HERE))
        return "there is no program openssl here that makes certificates (3.0 or later)";
    tls_port = server_free_port();
    (void)snprintf(options, sizeof(options),
                   "tls-port %d\ntls-cert-file %s/good.crt\ntls-key-file %s/good.key\n"
                   "tls-ca-cert-file %s/ours.crt\ntls-auth-clients no",
                   tls_port, plain.folder, plain.folder, plain.folder);
    server_start(&s, options);
    return NULL;
}

/* ---- stores ------------------------------------------------------------------------------ */

static usm_status open_tls(const char *host, int port, void **store)
{
    char text[128];

    *store = NULL;
    (void)snprintf(text, sizeof(text), "%s:%d,tls,timeout=2000", host, port);
    return open_store(text, NULL, store);
}

/* The module refuses the server, in one sentence with these words. */
static void check_refused(const char *host, int port, const char *culprit, const char *remedy)
{
    void *store;
    char  name[64];

    CHECK_INT(open_tls(host, port, &store), USM_E_IO);
    (void)snprintf(name, sizeof(name), "the server %s:%d cannot be used: ", host, port);
    CHECK_IN(name, usm_last_error());
    CHECK_IN(culprit, usm_last_error());
    CHECK_IN(remedy, usm_last_error());
    CHECK(!strchr(usm_last_error(), '\n'));
    CHECK(store == NULL);
    check_keys(&s, ":0");
}

static void *suite_open(size_t c)
{
    void *store;

    (void)c;
    CHECK_INT(open_tls("127.0.0.1", tls_port, &store), USM_OK);
    return store;
}

static void the_suite_holds(void)
{
    trust("ours");
    suite_run(0);
    check_keys(&s, ":0");
}

static void a_connection_that_is_cut_is_made_again(void)
{
    enum { N = 50 };
    char  text[512], *data = pages(BLOCK);
    void *store;

    module_start();
    trust("ours");
    store = suite_open(0);
    ops->describe(store, text, sizeof(text));
    CHECK_IN("by TLS", text);
    CHECK_INT(ops->reserve(store, 0, N), USM_OK);
    for (uint64_t turn = 0; turn < 4; turn++) {
        for (uint64_t b = 0; b < N; b++) {
            fill(data, b, turn, 0, BLOCK);
            store_block(store, b, data);
        }
        (void)server_say(&s, "CLIENT KILL TYPE normal");
        for (uint64_t b = 0; b < N; b++) {
            fetch_block(store, b, data);
            CHECK(is_filled(data, b, turn, 0, BLOCK));
        }
    }
    ops->close(store);
    module_clean();
    munmap(data, BLOCK);
}

/* ---- what is refused ----------------------------------------------------------------------- */

static void another_authority_is_refused(void)
{
    module_start();
    trust("theirs");
    check_refused("127.0.0.1", tls_port, "certificate in certificate chain",
                  "SSL_CERT_FILE names the authorities that are trusted");
    module_clean();
}

static void another_name_is_refused(void)
{
    module_start();
    trust("ours");
    check_refused("localhost", tls_port, "TLS: hostname mismatch",
                  "name the server as its certificate does");
    CHECK(certify("elsewhere", BY_US NOW " -addext subjectAltName=IP:127.0.0.2"));
    present("elsewhere");
    check_refused("127.0.0.1", tls_port, "TLS: IP address mismatch",
                  "name the server as its certificate does");
    present("good");
    module_clean();
}

static void an_expired_certificate_is_refused(void)
{
    if (!certify("old", BY_US HERE " -not_before 20200101000000Z -not_after 20200201000000Z"))
        SKIP("this openssl makes no certificates for the past (3.4 does)");
    module_start();
    trust("ours");
    present("old");
    check_refused("127.0.0.1", tls_port, "TLS: certificate has expired", "renew it");
    present("good");
    module_clean();
}

static void a_server_without_tls_is_refused(void)
{
    module_start();
    trust("ours");
    check_refused("127.0.0.1", s.port, "it may not speak TLS on this port", "tls-port");
    module_clean();
}

static void a_server_with_tls_is_refused_without(void)
{
    char  text[64];
    void *store = NULL;

    module_start();
    (void)snprintf(text, sizeof(text), "127.0.0.1:%d,timeout=2000", tls_port);
    CHECK_INT(open_store(text, NULL, &store), USM_E_IO);
    CHECK_IN("if it speaks TLS, add tls", usm_last_error());
    module_clean();
}

static const plain_case cases[] = {
    CASE(the_suite_holds),
    CASE(a_connection_that_is_cut_is_made_again),
    CASE(another_authority_is_refused),
    CASE(another_name_is_refused),
    CASE(an_expired_certificate_is_refused),
    CASE(a_server_without_tls_is_refused),
    CASE(a_server_with_tls_is_refused_without),
    {NULL, NULL},
};

/* ---- without TLS ------------------------------------------------------------------------- */

static void a_build_without_tls_says_so(void)
{
    void *store;

    module_start();
    CHECK_INT(open_tls("127.0.0.1", 1, &store), USM_E_NOT_SUPPORTED);
    CHECK_IN("hiredis has from version 1.0 on", usm_last_error());
    module_clean();
}

static const plain_case without[] = {
    CASE(a_build_without_tls_says_so),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    const char *why = valkey_missing();
    void       *store;
    int         end;

    if (!why && open_tls("127.0.0.1", 1, &store) == USM_E_NOT_SUPPORTED)
        return plain_main(argc, argv, without);
    if (!why)
        why = tls_server();
    if (why) {
        printf("skipped: %s\n", why);
        return 77;
    }
    end = plain_main(argc, argv, cases);
    server_kill(&s);
    return end;
}
