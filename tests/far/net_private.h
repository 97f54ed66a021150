/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What net.c (messages and links) and net_node.c (nodes, time, what is known) share. */
#ifndef TESTS_FAR_NET_PRIVATE_H
#define TESTS_FAR_NET_PRIVATE_H

#include "net.h"

enum { POISON = 0xD5 };

typedef struct pending {
    struct pending *next;
    far_op         *op;
    unsigned char  *copy; /* of what is sent                                              */
    uint32_t        peer, tag, node;
    uint64_t        number;
    size_t          size;
    void           *buffer;
    far_result      result;
    bool            is_send, is_torn;
} pending;

typedef struct message {
    struct message *next;
    unsigned char  *data;
    size_t          size;
    uint32_t        from, to, tag;
    uint64_t        send; /* the number of a large send that has not ended; 0: none */
    bool            is_torn, is_header;
} message;

typedef struct event {
    uint64_t time, order;
    message *m;
    void (*fn)(void *arg, uint64_t number);
    void    *arg;
    uint64_t number;
} event;

typedef struct list {
    void **items;
    size_t n, cap;
} list;

typedef struct slot { /* the last arrival of a pair and tag */
    uint32_t from, to, tag;
    uint64_t last;
} slot;

typedef struct plan {
    net_moment moment;
    net_end    how;
    unsigned   nth; /* 0: none */
} plan;

typedef struct node {
    far_link link; /* first */
    net     *n;
    uint32_t self;
    bool     is_dead, is_hung, is_abandoned;
    list     receives;   /* pending, in the order they were asked for */
    list     unexpected; /* message                                  */
    list     stalled;    /* message: came while it hung              */
    list     ended;      /* pending: poll() calls their done        */
    list     stuck;      /* pending: sends and torn receives that may never end */
    plan     plan;
} node;

struct net {
    net_params params;
    net_faults faults;
    net_stats  stats;
    uint64_t   now, order, random, sends;
    bool       is_untold;
    void (*sniff)(void *arg, uint32_t from, uint32_t tag, const void *bytes, size_t size);
    void    *sniff_arg;
    event   *events; /* a heap */
    size_t   nevents, cap;
    slot    *slots;
    size_t   nlanes, slots_cap;
    bool     is_cut[NET_NODES_MAX][NET_NODES_MAX], drops[NET_NODES_MAX][NET_NODES_MAX];
    bool     hurt[NET_NODES_MAX][NET_NODES_MAX], hurt_data[NET_NODES_MAX][NET_NODES_MAX];
    uint64_t heard[NET_NODES_MAX][NET_NODES_MAX], silence[NET_NODES_MAX][NET_NODES_MAX];
    uint64_t reached[NET_NODES_MAX][NET_NODES_MAX];
    list     held; /* message: behind a cut */
    node     nodes[NET_NODES_MAX];
};

static inline bool net_is_header(uint32_t tag, size_t size)
{
    return tag == NET_TAG_HEADER || size <= NET_HEADER;
}

/* net_node.c */
void    *net_grown(void *p, size_t size);
void    *net_zeroed(size_t size);
void     net_list_add(list *l, void *item);
void    *net_list_take(list *l, size_t i);
uint64_t net_drawn(net *n, uint64_t below);
void     net_event_add(net *n, event e);
void     net_message_free(message *m);
void     net_poison(pending *p);
bool     net_holds_poison(const pending *p);

/* net.c */
extern const far_link_ops net_link_ops;
void                      net_arrive(net *n, message *m);
void                      net_end_op(net *n, pending *p, far_result result);

#endif
