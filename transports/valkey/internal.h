/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Shared by the parts of the transport over Valkey and Redis servers.
 *
 *     valkey.c    the table: open, close, submit, capacity
 *     objects.c   values under names of the user
 *     password.c  the password, from the environment or a file
 *     config.c    the text after "valkey:"
 *     slots.c     which server a block is on; clusters
 *     exit.c      the end of the process
 *     places.c    servers as replica targets
 *     room.c      which blocks are reserved, stored, or to be removed; the quota
 *     connect.c   a connection: TLS, password, what the server says of itself
 *     wire.c      its bytes, as they are or by TLS
 *     server.c    the thread of a server: transfers that wait, lost connections, silence
 *     command.c   commands: how they are written, sent, and matched with replies
 *
 * A store has a thread for each server.  submit() appends transfers to the server's queue; the
 * thread writes them as commands, many before the first reply (a pipeline), and ends each with its
 * reply.  Only the thread uses the connection. */
#ifndef USM_VALKEY_INTERNAL_H
#define USM_VALKEY_INTERNAL_H

#include "base/inline/atomic.h"
#include "base/inline/bits.h"

#include <hiredis/hiredis.h>
#include <pthread.h>
#include <string.h>
#include <sys/uio.h>
#include <time.h>
#include <usm/transport.h>

#define PAGE_SIZE    ((size_t)4096) /* of transfers */
#define SERVERS_MAX  64u
#define HOSTS_MAX    16u    /* that USM_SPILL may name */
#define PLACES_MAX   128u   /* HOSTS_MAX servers, eight lives each; or masters of a cluster */
#define SLOTS        16384u /* of a cluster */
#define NOBODY       255u   /* no server's index, no shard's number */
#define HOST_ROOM    256u
#define REASON_ROOM  256u
#define WINDOW       64u /* most transfers in flight on a connection                      */
#define WINDOW_BYTES ((size_t)512 << 10) /* most bytes in flight, with two transfers at least */
#define SENT_MAX     1024u  /* commands without a reply yet; a power of two                  */
#define TEXT_MAX     16384u /* of the commands of a batch, without the blocks' bytes         */
#define COMMAND_MAX  2048u  /* of the commands of a transfer, without the block's bytes      */
#define PARTS_MAX    64u    /* of a batch                                                    */
#define KEY_ROOM     128u
#define CHUNK_SIZE   ((size_t)256 << 10) /* most bytes that are received at a time */
#define NS_PER_MS    UINT64_C(1000000)

typedef struct usm_valkey_config {
    char     hosts[HOSTS_MAX][HOST_ROOM]; /* "host:port", "[::1]:port", "/path/of/a/socket" */
    size_t   nhosts;
    char     user[64], prefix[48];
    uint64_t quota;      /* bytes; UINT64_MAX: none                                  */
    uint32_t ttl_s;      /* seconds after which a server drops what is not renewed   */
    uint32_t timeout_ms; /* a server that is silent for that long has failed         */
    bool     tls;
} usm_valkey_config;

/* The blocks of a store.  A block is reserved or not; it has a key at a server (`stored`), or may
 * still have one that is to be removed (`stale`), or neither. */
typedef struct usm_valkey_room {
    pthread_mutex_t lock;
    /* guarded by lock */
    uint64_t *used, *stored, *stale; /* bits by block */
    uint64_t  nbits;
    /* changed under the lock, read without it */
    _Atomic(uint64_t) nused, nstored, nstale;
} usm_valkey_room;

typedef enum usm_valkey_kind {
    USM_VALKEY_WHOLE = 1, /* SET of a transfer                                               */
    USM_VALKEY_FETCH,     /* GET or GETRANGE                                                 */
    USM_VALKEY_QUEUED,    /* a command within MULTI: its reply is an error or of no interest */
    USM_VALKEY_PART,      /* EXEC: the last command of a transfer that stores a part         */
    USM_VALKEY_REMOVE,    /* UNLINK                                                          */
    USM_VALKEY_RENEW      /* EXPIRE                                                          */
} usm_valkey_kind;

typedef struct usm_valkey_sent {
    usm_transfer   *transfer; /* NULL: REMOVE, RENEW */
    usm_valkey_kind kind;
} usm_valkey_sent;

/* Commands that are being sent: text, and the bytes of blocks where they lie. */
typedef struct usm_valkey_batch {
    struct iovec parts[PARTS_MAX];
    unsigned     nparts, at; /* parts[at] is the first one that was not sent wholly */
    size_t       used;       /* of text */
    char         text[TEXT_MAX];
} usm_valkey_batch;

/* The reply that was received last. */
typedef struct usm_valkey_reply {
    int       type; /* REDIS_REPLY_*; 0: none yet                      */
    long long integer;
    size_t    size;              /* of a string                                     */
    char      text[REASON_ROOM]; /* of an error, also of one within an array        */
    long long first;             /* of an array: its first element, if an integer   */
} usm_valkey_reply;

typedef struct usm_valkey_store usm_valkey_store;

typedef struct usm_valkey_server {
    /* fixed after open */
    usm_valkey_store *store;
    unsigned          index;
    char              name[HOST_ROOM];
    bool              is_named; /* by the user: open() waits for its first connection */
    int               bell;     /* an eventfd that wakes the thread */
    pthread_mutex_t   lock;
    pthread_cond_t    changed;
    /* guarded by lock */
    usm_transfer *head, **tail; /* submitted; the thread has not taken them yet */
    bool          sleeps;       /* the thread: a submitter must ring            */
    bool          stop;
    bool          has_thread;
    bool          has_answer;          /* status and reason are known, and do not change any more */
    usm_status    status;              /* of the first connection */
    char          reason[REASON_ROOM]; /* of that status          */
    /* changed by the thread, read by any */
    _Atomic(bool)     is_connected;
    _Atomic(uint64_t) lost;    /* blocks that the server no longer had */
    _Atomic(uint64_t) maximum; /* bytes that it may hold (maxmemory); 0: no limit */
    /* of the thread alone */
    redisContext             *link;      /* NULL: not connected                    */
    struct ssl_st            *ssl;       /* the link's, when it is by TLS; else NULL */
    redisReplyObjectFunctions functions; /* the link's; hiredis wants them mutable */
    usm_transfer             *waiting, **waiting_tail;
    usm_valkey_sent           sent[SENT_MAX]; /* [sent_first, sent_end), modulo SENT_MAX */
    unsigned                  sent_first, sent_end;
    unsigned                  flying;       /* transfers among them */
    size_t                    flying_bytes; /* of those             */
    size_t           block_left; /* bytes of the oldest one, a fetch, that are still to come */
    unsigned         end_left;   /* of the line end behind it                                */
    size_t           kept;       /* bytes of chunk that are a part of a line                 */
    usm_valkey_batch batch;
    usm_valkey_reply reply;
    char             refusal[REASON_ROOM]; /* of a command within MULTI */
    char            *chunk;                /* CHUNK_SIZE bytes, for receiving */
    uint64_t         heard_ns, down_ns, retry_ns, renew_ns;
    uint64_t         hold_ns;  /* until then no transfers are sent: the cluster is down */
    uint64_t         renew_at; /* the next block to be renewed; UINT64_MAX: no round is under way */
    long long        client_id, old_client_id;              /* at the server; 0: unknown */
    char             run_id[48];                            /* of the server's process   */
    char             why[REASON_ROOM];                      /* there is no connection    */
    bool             warned_policy, warned_lost, is_reborn; /* is_reborn: it has lost its memory */
} usm_valkey_server;

/* A replica target: what a shard remembers from one start of its server to the next. */
typedef struct usm_valkey_target {
    _Atomic(uint8_t)         shard;
    _Atomic(usm_place_state) state; /* changed under the store's lock           */
    usm_place_state          told;  /* that the engine knows of; under the lock */
} usm_valkey_target;

struct usm_valkey_store {
    const usm_host_api *api;
    /* fixed after open */
    size_t             block_size;
    usm_valkey_config  config;
    char              *password; /* of os->secret_map(); NULL: none */
    size_t             npassword;
    struct ssl_ctx_st *tls;       /* NULL: without TLS */
    uint64_t           id;        /* random; a part of each key */
    pid_t              owner;     /* the process that opened it  */
    usm_valkey_store  *next_open; /* exit.c's                    */
    void (*place_changed)(void *user, uint32_t place, usm_place_state state); /* NULL: no places */
    void           *user;
    unsigned        stride; /* most places                              */
    unsigned        nshards;
    uint16_t        shard_slot[SERVERS_MAX]; /* a slot of each; its owner is the shard's server */
    uint8_t         shard_of[SLOTS];         /* NOBODY: a master with too few slots             */
    usm_valkey_room room;                    /* has a lock of its own */
    pthread_mutex_t lock;                    /* of the list of servers */
    /* changed under the lock; the first nservers are fixed and read without it */
    usm_valkey_server *servers[SERVERS_MAX];
    _Atomic(unsigned)  nservers;
    _Atomic(unsigned)  nplaces;
    usm_valkey_target  places[PLACES_MAX];
    unsigned           shard_place[SERVERS_MAX]; /* the newest; under the lock               */
    bool               is_notifying;             /* under the lock: a thread notifies        */
    bool               is_closing;               /* under the lock: none is added any more   */
    /* atomic; of a cluster */
    _Atomic(bool)    is_cluster;
    _Atomic(uint8_t) slots[SLOTS]; /* the index of each slot's server; NOBODY */
};

/* The transport's data in a transfer. */
typedef struct usm_valkey_piece {
    uint64_t block;    /* its number in the store: places.c */
    uint32_t attempts; /* connections that were lost with it in flight */
    uint32_t redirects;
    bool     creates; /* it stores a part of a block that has no key  */
    bool     was_sent;
    bool     asks;       /* the next server has the key, but not yet its slot (ASK) */
    uint64_t refused_ns; /* when a cluster first answered that it is down; 0: never */
} usm_valkey_piece;

_Static_assert(sizeof(usm_valkey_piece) <= sizeof(((usm_transfer *)0)->opaque), "fits");

/* NOLINTBEGIN(clang-diagnostic-cast-align): opaque is aligned to 8 */
static inline usm_valkey_piece *usm_valkey_piece_of(usm_transfer *t)
{
    return (usm_valkey_piece *)(void *)t->opaque;
}
/* NOLINTEND(clang-diagnostic-cast-align) */

static inline uint64_t usm_valkey_now(void)
{
    struct timespec t;

    (void)clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000 * NS_PER_MS + (uint64_t)t.tv_nsec;
}

static inline uint64_t usm_valkey_timeout_ns(const usm_valkey_server *v)
{
    return v->store->config.timeout_ms * NS_PER_MS;
}

static inline void usm_valkey_finish(usm_transfer *t, usm_status status)
{
    t->next = NULL;
    t->done(t, status);
}

/* config.c.  USM_E_INVALID with an error message */
usm_status usm_valkey_parse(const usm_host_api *api, const char *text, usm_valkey_config *config);

/* Cuts "host:port", "[::1]:port" or "host"; false: it is none of these. */
bool usm_valkey_split(const char *name, char *host, size_t room, int *port);

/* room.c */
usm_status usm_valkey_room_init(usm_valkey_store *s);
void       usm_valkey_room_fini(usm_valkey_store *s);
/* Blocks are numbers of the store: n of them, from `first` on, by `step`. */
usm_status usm_valkey_reserve(usm_valkey_store *s, uint64_t first, uint64_t n, uint64_t step);
/* Bytes that the quota and all servers allow; UINT64_MAX: no limit is known. */
uint64_t usm_valkey_limit(usm_valkey_store *s);
/* Returns whether a server has to be told. */
bool usm_valkey_forget(usm_valkey_store *s, uint64_t first, uint64_t n, uint64_t step);
/* Forgets all blocks of a place whose memory is gone. */
void usm_valkey_room_drop_place(usm_valkey_store *s, unsigned place);
/* The block is about to be stored.  Returns whether it has a key; *is_stale: an old key of it is
 * to be removed first, which the caller does. */
bool usm_valkey_note_store(usm_valkey_store *s, uint64_t block, bool *is_stale);
/* The block's key has other bytes than were stored and is to be removed; the block is not
 * forgotten, so it is missing from now on. */
void usm_valkey_drop(usm_valkey_store *s, uint64_t block);
/* The first stale block of the server from `block` on, which the caller removes; the first stored
 * one.  False: there is none. */
bool usm_valkey_next_stale(usm_valkey_store *s, unsigned server, uint64_t *block);
bool usm_valkey_next_stored(usm_valkey_store *s, unsigned server, uint64_t *block);

/* places.c: as in the table (usm/transport.h). */
uint32_t   usm_valkey_places(void *store);
usm_status usm_valkey_place(void *store, uint32_t place, usm_transport_place *info);
/* Before there are servers: each that is named is a shard. */
void usm_valkey_places_init(usm_valkey_store *s, const usm_transport_params *params);
/* The servers are a cluster, whose slots are known: each master is a shard. */
void usm_valkey_places_of_cluster(usm_valkey_store *s);
/* The block's number in the store; false: there is no such place. */
bool usm_valkey_number(const usm_valkey_store *s, uint64_t block, uint64_t *number);
/* The index of the server that has the shard. */
unsigned usm_valkey_shard_owner(const usm_valkey_store *s, unsigned shard);
/* The server's places enter a state.  Here and below the caller, the thread of a server, notifies the
 * engine; it must hold no lock, and be ready for transfers. */
void usm_valkey_place_enter(usm_valkey_server *v, usm_place_state state);
/* Places whose server is connected are UP. */
void usm_valkey_places_settle(usm_valkey_store *s);
/* The server has lost its memory: its shards have other places from now on. */
void usm_valkey_place_reborn(usm_valkey_server *v);

/* exit.c.  While a store is in its list, the end of the process removes what it has stored. */
void usm_valkey_exit_add(usm_valkey_store *s);
void usm_valkey_exit_remove(usm_valkey_store *s);

/* valkey.c.  Removes what the store has at its servers, and ends their threads. */
void usm_valkey_stop_servers(usm_valkey_store *s);

/* slots.c */
/* The length of the block's key. */
size_t usm_valkey_key(const usm_valkey_store *s, uint64_t block, char key[KEY_ROOM]);
/* The index of the block's server. */
unsigned usm_valkey_route(usm_valkey_store *s, uint64_t block);
/* The server of that name, which is added if it is new.  NULL: there is no room or memory. */
usm_valkey_server *usm_valkey_server_of(usm_valkey_store *s, const char *name);
/* The address in an error, MOVED or ASK; false: it is another error. */
bool usm_valkey_moved_to(const char *words, char name[HOST_ROOM]);
/* The server that an error, MOVED or ASK, names; NULL: it is another error. */
usm_valkey_server *usm_valkey_redirect(usm_valkey_store *s, const char *words);
/* Takes over what `asked` answered to CLUSTER SLOTS; false: it makes no sense. */
bool usm_valkey_learn(usm_valkey_store *s, const redisReply *reply, const char *asked);

/* password.c.  USM_E_KEY, USM_E_NO_MEMORY; s->password is NULL where there is none */
usm_status usm_valkey_password_take(usm_valkey_store *s);
void       usm_valkey_password_drop(usm_valkey_store *s);

/* objects.c: as in the table (usm/transport.h). */
usm_status usm_valkey_objects_open(const usm_transport_params *params, void **objects);
void       usm_valkey_objects_close(void *objects);
usm_status usm_valkey_object_size(void *objects, const char *name, uint64_t *size);
usm_status usm_valkey_object_read(void *objects, const char *name, void *data, size_t size);
usm_status usm_valkey_object_write(void *objects, const char *name, const void *data, size_t size);

/* connect.c */
/* Connects for the caller's thread, which waits in each command: of the server only its answer to
 * the password is known.  As usm_valkey_connect(), and v->why has the reason. */
usm_status usm_valkey_meet(usm_valkey_server *v);
/* Has another server of the cluster tell which server has which slots; v has no connection. */
void usm_valkey_ask_others(usm_valkey_server *v);
/* Makes the connection: v->link.  USM_E_AGAIN: the server is loading its data; USM_E_KEY: it wants
 * another password; USM_E_IO.  v->why has the reason. */
usm_status usm_valkey_connect(usm_valkey_server *v);
void       usm_valkey_disconnect(usm_valkey_server *v);

/* wire.c */
/* USM_E_NOT_SUPPORTED: TLS is wanted, and this build has none. */
usm_status usm_valkey_tls_init(usm_valkey_store *s);
void       usm_valkey_tls_fini(usm_valkey_store *s);
/* False, with v->why. */
bool usm_valkey_tls_begin(usm_valkey_server *v, const char *host);
/* As sendmsg() and recvmsg(); by TLS the first part alone. */
ssize_t usm_valkey_send(usm_valkey_server *v, struct iovec *parts, unsigned n);
ssize_t usm_valkey_recv(usm_valkey_server *v, struct iovec *parts, unsigned n);
/* Whether bytes are here that poll() does not see. */
bool usm_valkey_has_more(const usm_valkey_server *v);

/* command.c */
/* The functions by which hiredis hands over what it has parsed: a block's bytes go where the
 * transfer wants them. */
extern const redisReplyObjectFunctions usm_valkey_reply_functions;
/* Appends commands to the batch: what is to be removed and renewed, and transfers that wait. */
void usm_valkey_fill(usm_valkey_server *v);
/* The removal of all that is stored there, block *from and later; false: there is no more. */
bool usm_valkey_fill_removals(usm_valkey_server *v, uint64_t *from);
/* False, with v->why: the connection is broken. */
bool               usm_valkey_flush(usm_valkey_server *v);
bool               usm_valkey_receive(usm_valkey_server *v);
static inline bool usm_valkey_is_sending(const usm_valkey_server *v)
{
    return v->batch.at < v->batch.nparts;
}
static inline unsigned usm_valkey_nsent(const usm_valkey_server *v)
{
    return v->sent_end - v->sent_first;
}

/* server.c */
/* Starts the server's thread, which connects. */
usm_status usm_valkey_server_create(usm_valkey_store *s, unsigned index, const char *name,
                                    usm_valkey_server **server);
/* Waits for the first connection: USM_E_IO, USM_E_KEY. */
usm_status usm_valkey_server_await(usm_valkey_server *v);
/* Removes the blocks that are stored there, and ends the thread. */
void usm_valkey_server_stop(usm_valkey_server *v);
/* All servers are stopped: their threads look at each other. */
void usm_valkey_server_destroy(usm_valkey_server *v);
/* Hands one transfer to the server's thread. */
void usm_valkey_server_add(usm_valkey_server *v, usm_transfer *t);
/* Wakes the thread: there is something to be removed. */
void usm_valkey_server_ring(usm_valkey_server *v);

#endif
