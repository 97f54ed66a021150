/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* Descriptors fetched from other processes, and their ends noticed: src/ipc/rendezvous.h. */
#include "base/inline/atomic.h"
#include "base/os.h"
#include "base/os_ipc.h"
#include "ipc/service.h"
#include "two.h"

#include <sys/mman.h>

#include <usm/ipc.h>

/* ---- how long an owner is waited for ----------------------------------------------------
 *
 * The kernel keeps this time, so no virtual clock helps.  It is short where the owner stands still,
 * and long enough for any machine where it does not. */

static unsigned patience_ms = TWO_WAIT_MS;

int __real_usm__os_connect(const char *name, unsigned timeout_ms);
int __wrap_usm__os_connect(const char *name, unsigned timeout_ms);

int __wrap_usm__os_connect(const char *name, unsigned timeout_ms)
{
    CHECK_INT(timeout_ms, USM__IPC_DEADLINE_MS); /* 0 would be for ever */
    return __real_usm__os_connect(name, patience_ms);
}

/* ---- the peer: shares a memory file that says "mine" ---------------------------------- */

static void share_text(const char *text, usm__ipc_name *name)
{
    int fd = usm__os_memfd("test", 4096);

    CHECK(fd >= 0);
    CHECK(write(fd, text, strlen(text)) == (ssize_t)strlen(text));
    CHECK_INT(usm__ipc_share(fd, "beside", 7, name), USM_OK);
    CHECK(usm__os_close(fd) == 0);
}

static void owner(void)
{
    usm__ipc_name name;

    share_text("mine", &name);
    two_send(TWO_FD, &name, sizeof name);
    if (two_hear(TWO_FD) != 1)
        return;
    usm__ipc_unshare(&name);
    two_tell(TWO_FD, 1);
    (void)two_hear(TWO_FD);
}

static void importer(void)
{
    usm__ipc_name name;
    char          beside[8] = "";
    int           fd        = -1;

    two_receive(TWO_FD, &name, sizeof name);
    two_tell(TWO_FD, usm__ipc_fetch(&name, &fd, beside, 7));
    (void)two_hear(TWO_FD);
}

static void idle(void)
{
    usm__ipc_process self;

    CHECK_INT(usm__ipc_self(&self), USM_OK);
    two_send(TWO_FD, &self, sizeof self);
    (void)two_hear(TWO_FD);
}

static void sayer(void)
{
    usm__ipc_process to;
    int              fd = usm__os_memfd("word", 4096);

    two_receive(TWO_FD, &to, sizeof to);
    two_tell(TWO_FD, usm__ipc_say(&to, "hello", 6, fd));
    (void)two_hear(TWO_FD);
}

/* What the owner itself answers, without libusm's own checks. */
static int ask_by_hand(const usm__ipc_name *name)
{
    usm__ipc_request r = {.magic    = USM__IPC_PACKET_MAGIC,
                          .op       = USM__IPC_OP_FETCH,
                          .exchange = 1,
                          .id       = name->id,
                          .nonce    = name->nonce};
    usm__ipc_answer  answer;
    char             path[100];
    int              fd, passed = -1;

    usm__ipc_socket_name(&name->owner, path, sizeof path);
    fd = usm__os_connect(path, USM__IPC_DEADLINE_MS);
    CHECK(fd >= 0);
    (void)usm__os_send(fd, &r, sizeof r, -1);
    CHECK(usm__os_receive(fd, &answer, sizeof answer, &passed) == (ssize_t)sizeof answer);
    CHECK_INT(passed, -1);
    CHECK(usm__os_close(fd) == 0);
    return answer.status;
}

/* Is another user from here on. */
static void stranger(void)
{
    usm__ipc_name name;
    int           fd = -1;

    CHECK(setgid(65534) == 0 && setuid(65534) == 0);
    two_receive(TWO_FD, &name, sizeof name);
    two_tell(TWO_FD, usm__ipc_fetch(&name, &fd, NULL, 0));
    name.owner.uid = 65534; /* as a forger would have it */
    two_tell(TWO_FD, usm__ipc_fetch(&name, &fd, NULL, 0));
    two_tell(TWO_FD, ask_by_hand(&name));
    (void)two_hear(TWO_FD);
}

static const two_role roles[] = {ROLE(owner), ROLE(importer), ROLE(idle),
                                 ROLE(sayer), ROLE(stranger), {NULL, NULL}};

/* ---- cases ------------------------------------------------------------------------------- */

static two_peer start_owner(usm__ipc_name *name)
{
    two_peer p = two_start("owner", NULL);

    two_receive(p.fd, name, sizeof *name);
    return p;
}

static void a_descriptor_is_fetched_with_what_lies_beside_it(void)
{
    usm__ipc_name name;
    two_peer      p          = start_owner(&name);
    char          text[5]    = "";
    char          beside[16] = "";
    int           fd         = -1;

    CHECK_INT(usm__ipc_fetch(&name, &fd, beside, 7), USM_OK);
    CHECK_STR(beside, "beside");
    CHECK(pread(fd, text, 4, 0) == 4);
    CHECK_STR(text, "mine");
    CHECK((fcntl(fd, F_GETFD) & FD_CLOEXEC) != 0);
    CHECK(usm__os_close(fd) == 0);
    CHECK(usm__ipc_connection(&name.owner) != 0);
    two_tell(p.fd, 0);
    CHECK_INT(two_end(&p), 0);
}

static void what_is_not_shared_any_more_is_stale(void)
{
    usm__ipc_name name, other;
    two_peer      p  = start_owner(&name);
    int           fd = -1;

    other = name;
    other.nonce ^= 1;
    CHECK_INT(usm__ipc_fetch(&other, &fd, NULL, 0), USM_E_STALE);
    two_tell(p.fd, 1);
    (void)two_hear(p.fd);
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_E_STALE);
    CHECK_INT(fd, -1);
    two_tell(p.fd, 0);
    CHECK_INT(two_end(&p), 0);
}

static void an_owner_that_ended_is_gone(void)
{
    usm__ipc_name name;
    two_peer      p  = start_owner(&name);
    int           fd = -1;

    CHECK(usm__ipc_is_alive(&name.owner));
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_OK);
    CHECK(usm__os_close(fd) == 0);
    two_kill(&p);
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_E_OWNER_GONE);
    CHECK(!usm__ipc_is_alive(&name.owner));
}

static void an_owner_of_another_start_is_gone(void)
{
    usm__ipc_name name;
    two_peer      p  = start_owner(&name);
    int           fd = -1;

    name.owner.start--;
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_E_OWNER_GONE);
    CHECK(!usm__ipc_is_alive(&name.owner));
    two_tell(p.fd, 0);
    CHECK_INT(two_end(&p), 0);
}

static void an_owner_that_is_stopped_does_not_stop_its_importers(void)
{
    usm__ipc_name name;
    two_peer      p  = start_owner(&name);
    int           fd = -1;

    CHECK(kill(p.pid, SIGSTOP) == 0);
    CHECK(waitpid(p.pid, NULL, WUNTRACED) == p.pid); /* it has stopped */
    patience_ms = 50;
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_E_SYSTEM);
    CHECK_IN("is it stopped?", usm_last_error());
    patience_ms = TWO_WAIT_MS;
    CHECK(kill(p.pid, SIGCONT) == 0);
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_OK); /* not the late answer's */
    CHECK(usm__os_close(fd) == 0);
    two_tell(p.fd, 0);
    CHECK_INT(two_end(&p), 0);
}

static void another_user_is_refused(void)
{
    usm__ipc_name name;
    two_peer      p;

    if (getuid() != 0)
        SKIP("needs root, to become another user");
    share_text("mine", &name);
    p = two_start("stranger", NULL);
    two_send(p.fd, &name, sizeof name);
    for (int way = 0; way < 3; way++)
        CHECK_INT(two_hear(p.fd), USM_E_PERMISSION);
    two_tell(p.fd, 0);
    CHECK_INT(two_end(&p), 0);
    usm__ipc_unshare(&name);
}

static void what_this_process_shares_it_can_fetch(void)
{
    usm__ipc_name name;
    char          text[5] = "", beside[7] = "";
    int           fd = -1;

    share_text("mine", &name);
    CHECK(usm__ipc_is_self(&name.owner));
    CHECK_INT(usm__ipc_fetch(&name, &fd, beside, sizeof beside), USM_OK);
    CHECK_STR(beside, "beside");
    CHECK(pread(fd, text, 4, 0) == 4);
    CHECK_STR(text, "mine");
    CHECK(usm__os_close(fd) == 0);
    usm__ipc_unshare(&name);
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_E_STALE);
}

static struct {
    _Atomic(int) ends, losses, words, left, bytes;
    _Atomic(int) pid;
} seen;

static void note_end(usm__ipc_watch *w)
{
    seen.pid = w->process.pid;
    usm_add_release(&seen.ends, 1);
}

static void the_end_of_a_watched_process_is_told_once(void)
{
    usm__ipc_watch w = {.fn = note_end};
    two_peer       p = two_start("idle", NULL);

    two_receive(p.fd, &w.process, sizeof w.process);
    usm_store_release(&seen.ends, 0);
    CHECK_INT(usm__ipc_watch_start(&w), USM_OK);
    CHECK(usm__ipc_is_alive(&w.process));
    two_kill(&p);
    CHECK(two_wait_for(&seen.ends, 1, TWO_WAIT_MS));
    usm__ipc_watch_stop(&w);
    CHECK_INT(usm_load_acquire(&seen.ends), 1);
    CHECK_INT(seen.pid, w.process.pid);
    CHECK(!usm__ipc_is_alive(&w.process));
    CHECK_INT(usm__ipc_watch_start(&w), USM_E_OWNER_GONE);
    usm__ipc_watch_stop(&w);
}

static void a_watch_that_was_stopped_is_silent(void)
{
    usm__ipc_watch w = {.fn = note_end}, other = {.fn = note_end};
    two_peer       p = two_start("idle", NULL);

    two_receive(p.fd, &w.process, sizeof w.process);
    other.process = w.process;
    usm_store_release(&seen.ends, 0);
    CHECK_INT(usm__ipc_watch_start(&w), USM_OK);
    CHECK_INT(usm__ipc_watch_start(&other), USM_OK);
    usm__ipc_watch_stop(&w);
    two_kill(&p);
    CHECK(two_wait_for(&seen.ends, 1, TWO_WAIT_MS));
    usm__ipc_watch_stop(&other);
    CHECK_INT(usm_load_acquire(&seen.ends), 1);
}

static void note_loss(int pid, usm_ipc_role role, void *user)
{
    CHECK(user == &seen);
    CHECK_INT(role, USM_IPC_IMPORTER);
    seen.pid = pid;
    usm_add_release(&seen.losses, 1);
}

static void the_end_of_an_importer_is_told_to_the_program(void)
{
    usm__ipc_name name;
    two_peer      p = two_start("importer", NULL);

    usm_ipc_on_loss(note_loss, &seen);
    usm_store_release(&seen.losses, 0);
    share_text("mine", &name);
    two_send(p.fd, &name, sizeof name);
    CHECK_INT(two_hear(p.fd), USM_OK);
    CHECK_INT(usm__ipc_callers(), 1);
    pid_t pid = p.pid;
    two_kill(&p);
    CHECK(two_wait_for(&seen.losses, 1, TWO_WAIT_MS));
    CHECK_INT(seen.pid, pid);
    usm__ipc_unshare(&name);
    usm_ipc_on_loss(NULL, NULL);
}

static bool hear_word(const usm__ipc_process *from, const void *word, size_t size, int fd)
{
    CHECK_STR((const char *)word, "hello");
    CHECK_INT(size, 6);
    usm_store_release(&seen.bytes, (int)lseek(fd, 0, SEEK_END));
    CHECK(usm__os_close(fd) == 0);
    seen.pid = from->pid;
    usm_add_release(&seen.words, 1);
    return true;
}

static void hear_left(const usm__ipc_process *from)
{
    seen.pid = from->pid;
    usm_add_release(&seen.left, 1);
}

static void words_are_heard_and_so_is_the_leaving(void)
{
    static const usm__ipc_ear ear = {hear_word, hear_left};
    usm__ipc_process          self;
    two_peer                  p = two_start("sayer", NULL);

    usm__ipc_listen(&ear);
    CHECK_INT(usm__ipc_self(&self), USM_OK);
    two_send(p.fd, &self, sizeof self);
    CHECK_INT(two_hear(p.fd), USM_OK);
    CHECK(two_wait_for(&seen.words, 1, TWO_WAIT_MS));
    CHECK_INT(seen.pid, p.pid);
    CHECK_INT(usm_load_acquire(&seen.bytes), 4096);
    two_kill(&p);
    CHECK(two_wait_for(&seen.left, 1, TWO_WAIT_MS));
    usm__ipc_listen(NULL);
}

static void in_child(void)
{
    usm__ipc_process self;

    CHECK(!usm__ipc_is_alive(&(usm__ipc_process){.pid = getpid(), .start = 1}));
    CHECK_INT(usm__ipc_self(&self), USM_OK);
    CHECK_INT(self.pid, getpid());
    CHECK(usm__ipc_is_self(&self));
}

static void a_forked_child_starts_afresh(void)
{
    usm__ipc_name    name;
    usm__ipc_process self;
    int              fd = -1;

    if (TWO_TSAN)
        return;
    share_text("mine", &name);
    CHECK_INT(plain_child(in_child, NULL), 0);
    CHECK_INT(usm__ipc_self(&self), USM_OK);
    CHECK(self.secret == name.owner.secret);
    CHECK_INT(usm__ipc_fetch(&name, &fd, NULL, 0), USM_OK);
    CHECK(usm__os_close(fd) == 0);
    usm__ipc_unshare(&name);
}

static void descriptors_return_to_the_start(void)
{
    usm__ipc_process self;
    int              before;

    CHECK_INT(usm__ipc_self(&self), USM_OK);
    before = two_settled_descriptors();
    for (int i = 0; i < 3; i++) {
        a_descriptor_is_fetched_with_what_lies_beside_it();
        an_owner_that_ended_is_gone();
        the_end_of_an_importer_is_told_to_the_program();
    }
    for (int ms = 0; ms < TWO_WAIT_MS && two_descriptors() != before; ms++)
        (void)usleep(1000);
    CHECK_INT(two_descriptors(), before);
}

static const plain_case cases[] = {
    CASE(a_descriptor_is_fetched_with_what_lies_beside_it),
    CASE(what_is_not_shared_any_more_is_stale),
    CASE(an_owner_that_ended_is_gone),
    CASE(an_owner_of_another_start_is_gone),
    CASE(an_owner_that_is_stopped_does_not_stop_its_importers),
    CASE(another_user_is_refused),
    CASE(what_this_process_shares_it_can_fetch),
    CASE(the_end_of_a_watched_process_is_told_once),
    CASE(a_watch_that_was_stopped_is_silent),
    CASE(the_end_of_an_importer_is_told_to_the_program),
    CASE(words_are_heard_and_so_is_the_leaving),
    CASE(a_forked_child_starts_afresh),
    CASE(descriptors_return_to_the_start),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return two_main(argc, argv, cases, roles);
}
