/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The door of memory servers (transports/mpi/door.c) and visitors whose words arrive while it looks
 * the other way.  The visitors write the messages themselves, byte by byte: nobody waits for
 * anybody, and one thread plays all. */
#include "mpi/internal.h"

#include "../unit/module_api.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

enum { HELLO_SIZE = 64, KNOCK_SIZE = 96, ANSWER_SIZE = 64 + MPI_PORT_SIZE, ENTER_SIZE = 8 };
enum { KNOCK = 2, ENTER = 4 };
enum { WELCOME = 1, FULL = 3 };

static mpi_door      *door;
static mpi_doorkeeper keeper;
static uint16_t       port;

/* door.c's clock and the key, of which there is none. */
uint64_t mpi_now(void)
{
    return usm__os_now_ns();
}

static void open_door(void)
{
    char address[MPI_ADDRESS_SIZE];

    module_start();
    keeper = (mpi_doorkeeper){.api = &module_api, .port = "port"};
    CHECK_INT(mpi_door_open(&module_api, &door), USM_OK);
    mpi_door_describe(door, address);
    port = (uint16_t)strtoul(address + strlen("usm1/0123456789abcdef/"), NULL, 10);
}

static void close_door(void)
{
    mpi_door_close(door);
    module_clean();
}

static bool keep(void)
{
    return mpi_door_keep(door, &keeper, 10);
}

/* ---- visitors ---------------------------------------------------------------------------- */

static int come(void)
{
    struct sockaddr_in at = {.sin_family = AF_INET, .sin_port = htons(port)};
    unsigned char      hello[HELLO_SIZE];
    int                fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);

    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    CHECK_INT(connect(fd, (struct sockaddr *)&at, sizeof(at)), 0);
    CHECK(!keep());
    CHECK_INT(recv(fd, hello, sizeof(hello), MSG_WAITALL), HELLO_SIZE);
    return fd;
}

static void say(int fd, unsigned char kind, size_t size)
{
    unsigned char text[KNOCK_SIZE] = {'U', 'S', 'M', 'D', 1, 0, kind};

    CHECK_INT(send(fd, text, size, MSG_NOSIGNAL), size);
}

static bool is_answered(int fd)
{
    return poll(&(struct pollfd){.fd = fd, .events = POLLIN}, 1, 0) == 1;
}

static unsigned verdict(int fd)
{
    unsigned char text[ANSWER_SIZE];

    CHECK_INT(recv(fd, text, sizeof(text), MSG_WAITALL), ANSWER_SIZE);
    return text[8];
}

/* Two come, one knocks and is welcome. */
static void let_first_in(int *first, int *second)
{
    *first  = come();
    *second = come();
    say(*first, KNOCK, KNOCK_SIZE);
    CHECK(!keep());
    CHECK_INT(verdict(*first), WELCOME);
}

/* ---- cases --------------------------------------------------------------------------------- */

static void a_visitor_is_let_in(void)
{
    int fd;

    open_door();
    fd = come();
    say(fd, KNOCK, KNOCK_SIZE);
    CHECK(!keep());
    CHECK_INT(verdict(fd), WELCOME);
    say(fd, ENTER, ENTER_SIZE);
    CHECK(keep());
    CHECK(!keep());
    (void)close(fd);
    close_door();
}

static void others_wait_for_the_one_on_the_way(void)
{
    int first, second;

    open_door();
    let_first_in(&first, &second);
    say(second, KNOCK, KNOCK_SIZE);
    CHECK(!keep());
    CHECK_INT(verdict(second), FULL);
    (void)close(first);
    (void)close(second);
    close_door();
}

/* The keeper learns of who enters when mpi_door_keep() returns, so nobody is judged before. */
static void nobody_is_let_in_beside_the_one_who_enters(void)
{
    int first, second;

    open_door();
    let_first_in(&first, &second);
    say(first, ENTER, ENTER_SIZE);
    say(second, KNOCK, KNOCK_SIZE);
    CHECK(keep());
    CHECK(!is_answered(second));
    keeper.is_full = true;
    CHECK(!keep());
    CHECK_INT(verdict(second), FULL);
    (void)close(first);
    (void)close(second);
    close_door();
}

int main(int argc, char **argv)
{
    static const plain_case cases[] = {
        CASE(a_visitor_is_let_in),
        CASE(others_wait_for_the_one_on_the_way),
        CASE(nobody_is_let_in_beside_the_one_who_enters),
        {NULL, NULL},
    };

    return plain_main(argc, argv, cases);
}
