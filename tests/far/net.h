/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* A network for simulations of far memory: a far_link for each of its nodes, one thread, a clock
 * that goes from event to event, all of it by one seed.
 *
 * It does what real message systems do: small sends end before anybody has received them, large
 * ones when they were received; messages to the dead vanish; a node that was stopped finds all that
 * came meanwhile; receives may never end.  By plan it does worse (net_faults).  What a node does
 * with memory that belongs to the link is watched: receive buffers hold a pattern until a message
 * comes, what is sent is compared when the send ends, and net_owns() knows what may not be freed.
 *
 * Messages under NET_TAG_HEADER, and others of at most NET_HEADER bytes, count as headers, longer ones
 * as data. */
#ifndef TESTS_FAR_NET_H
#define TESTS_FAR_NET_H

#include "far/link.h"

enum { NET_HEADER = 64, NET_TAG_HEADER = 1, NET_NODES_MAX = 16 };

typedef struct net net;

/* Of a thousand messages. */
typedef struct net_rates {
    unsigned late;      /* by up to 3 `late_ns`                                             */
    unsigned doubled;   /* the second some time after                                       */
    unsigned dropped;   /* large sends of it never end                                      */
    unsigned reordered; /* before others of its tag                                         */
    unsigned flipped;   /* one bit                                                          */
    unsigned cut;       /* a part of it only, or longer than the room for it                */
} net_rates;

typedef struct net_faults {
    net_rates header, data;
} net_faults;

/* What happens at a moment of the protocol, once. */
typedef enum net_moment {
    NET_HEADER_COMES, /* a header reaches the node; it has not seen it                       */
    NET_DATA_COMES,
    NET_HEADER_GOES, /* the node sends a header: before                                     */
    NET_HEADER_GONE, /* ... after                                                           */
    NET_DATA_GOES,
    NET_DATA_GONE,
    NET_MOMENTS
} net_moment;

typedef enum net_end { NET_KILL, NET_HANG, NET_CUT, NET_ENDS } net_end;

typedef struct net_params {
    uint32_t count;
    uint64_t seed;
    uint64_t latency_ns; /* 1 to 3 of these a message, and more by size                    */
    uint64_t late_ns;
    size_t   eager;       /* sends of at most so many bytes end at once                       */
    bool     tells_death; /* FAR_PEER_LOST some time after a death                            */
    /* Something happened to a node that its next poll() sees. */
    void (*notice)(void *user, uint32_t node);
    /* A node misuses the link or its memory; does not return. */
    void (*found)(void *user, const char *what);
    /* A planned end has come: NET_HANG and NET_CUT are the caller's to take back. */
    void (*ended)(void *user, uint32_t node, net_end how);
    void *user;
} net_params;

typedef struct net_stats {
    uint64_t messages, bytes, faults;
    uint64_t late, doubled, dropped, reordered, flipped, cut, torn, from_the_dead;
    uint64_t late_writes; /* into receives of nodes that are gone                            */
} net_stats;

net      *net_create(const net_params *params);
void      net_destroy(net *n);
far_link *net_link(net *n, uint32_t node);
uint64_t  net_now(const net *n);
void      net_get_stats(const net *n, net_stats *stats);

/* Calls fn at that time, or at once when it is past. */
void net_at(net *n, uint64_t time, void (*fn)(void *arg, uint64_t number), void *arg,
            uint64_t number);
/* The next event; false: there is none. */
bool net_run_one(net *n);

void net_set_faults(net *n, const net_faults *faults);
/* Looks at every message that is sent. */
void net_sniff(net *n,
               void (*fn)(void *arg, uint32_t from, uint32_t tag, const void *bytes, size_t size),
               void *arg);
/* A message that its sender did not send. */
void net_inject(net *n, uint32_t from, uint32_t to, uint32_t tag, const void *bytes, size_t size);
/* Planted: what these do nobody is told. */
void net_set_untold(net *n, const net_faults *faults);
/* Planted: changes memory that a receive has. */
void net_scribble(net *n);
/* At the nth such moment from now on. */
void net_plan(net *n, uint32_t node, net_moment moment, unsigned nth, net_end how);
/* Never more of this node; parts of what it sent may still come. */
void net_kill(net *n, uint32_t node);
/* Its process lives and does not run: the caller steps it no more. */
void net_hang(net *n, uint32_t node, bool hangs);
/* What one sends to the other stays away: it comes when that is over, or never (drops). */
void net_cut(net *n, uint32_t from, uint32_t to, bool is_cut, bool drops);
/* The node is not polled any more: its process goes on, messages are written where it asked. */
void net_abandon(net *n, uint32_t node);
bool net_is_cut(const net *n, uint32_t from, uint32_t to);
bool net_is_dead(const net *n, uint32_t node);
bool net_is_hung(const net *n, uint32_t node);

/* When poll() last gave `to` a header of `from` that came on its own. */
uint64_t net_last_heard(const net *n, uint32_t from, uint32_t to);
/* ... anything at all of it. */
uint64_t net_last_reached(const net *n, uint32_t from, uint32_t to);
/* The longest time between two of them, the one under way included. */
uint64_t net_silence(const net *n, uint32_t from, uint32_t to);
/* Data of this pair, in this direction, was changed or put out of order within its tag, which nodes
 * need not see. */
bool net_hurt_data(const net *n, uint32_t from, uint32_t to);
/* Anything of this pair, either way, was treated so, or was late or cut off. */
bool net_hurt(const net *n, uint32_t a, uint32_t b);
/* An operation of the node under way uses some of these bytes. */
bool net_owns(const net *n, uint32_t node, const void *p, size_t size);
/* A receive does. */
bool net_receives(const net *n, uint32_t node, const void *p, size_t size);
/* Bytes of data that operations of a node have in their hands. */
uint64_t net_held(const net *n, uint32_t node);
/* Every receive buffer still holds its pattern. */
void net_check(const net *n);

#endif
