/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* usm-top in a terminal: the list above, the details of the chosen process below, keys as in htop.  All
 * text is layout.c's; here it gets its place and its colours. */
#include "top.h"

#include "base/inline/plural.h"
#include "base/os.h"

#include <ctype.h>
#include <locale.h>
#include <ncurses.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <term.h>
#include <unistd.h>

enum { ESCAPE = 27, CONTROL_L = 12, TEXT = 1 << 17, FILTER = 48 };
enum { GREEN = 1, BLUE, RED, CYAN };

static const char keys_long[]  = "F1 help  F4 filter  F6 sort  I reverse  Space pause  F10 quit";
static const char keys_short[] = "F1 help  F10 quit";

static const char help[] = "keys of usm-top\n"
                           "\n"
                           "  Up Down PgUp PgDn Home End  choose a process\n"
                           "  Left Right                  scroll its details\n"
                           "  F1 h ?                      these lines\n"
                           "  F4 \\                        show programs whose names have a text\n"
                           "  F6 s >                      the next order: live, reserved, ...\n"
                           "  I                           reverse it\n"
                           "  + -                         sample less, more often\n"
                           "  Space                       pause\n"
                           "  F10 q                       quit\n"
                           "\n"
                           "  LIVE  in blocks of the program      HELD  taken from drivers\n"
                           "  in bars:  | live   : held besides   ' the most ever held\n"
                           "\n"
                           "press a key\n";

typedef struct view {
    top_model *m;
    uint32_t   chosen; /* a process id: it stays chosen wherever it goes */
    size_t     first;  /* row of the list that is shown first */
    int        scroll; /* lines of the details above the first that is shown */
    unsigned   every_ms;
    bool       is_paused, has_help, has_prompt, has_ended;
    size_t     gone; /* processes that ended since the start */
    char       filter[FILTER];
    char       text[TEXT];
} view;

/* ---- lines ------------------------------------------------------------------------------------ */

/* Only the inside of [..] is a bar: names may have any character. */
static void draw_bars(int y, const char *line, size_t size)
{
    bool is_inside = false;

    for (size_t i = 0; i < size; i++) {
        int colour = line[i] == '|' ? GREEN : line[i] == ':' ? BLUE : line[i] == '\'' ? RED : 0;

        if (line[i] == '[')
            is_inside = true;
        else if (line[i] == ']')
            return;
        else if (is_inside && colour)
            (void)mvchgat(y, (int)i, 1, A_BOLD, (short)colour, NULL);
    }
}

/* Returns the line after `text`'s first. */
static const char *draw_line(int y, const char *text, attr_t how)
{
    size_t      size = strcspn(text, "\n");
    const char *grows;

    (void)attrset(how);
    (void)mvaddnstr(y, 0, text, (int)size);
    if (how & A_REVERSE)
        for (int x = getcurx(stdscr); getcury(stdscr) == y && x < COLS; x++)
            (void)mvaddch(y, x, ' ');
    (void)attrset(A_NORMAL);
    if (how == A_NORMAL)
        draw_bars(y, text, size);
    grows = strstr(text, "  grows: ");
    if (grows && grows < text + size)
        (void)mvchgat(y, (int)(grows - text), -1, A_BOLD, RED, NULL);
    return text + size + (text[size] == '\n');
}

static const char *text_of(view *v, void (*put)(usm__out *o, const view *v))
{
    usm__out o = {.text = v->text, .cap = sizeof v->text};

    v->text[0] = '\0';
    put(&o, v);
    v->text[sizeof v->text - 1] = '\0';
    return v->text;
}

/* ---- the parts of the screen -------------------------------------------------------------------- */

static size_t chosen_row(const view *v)
{
    for (size_t i = 0; i < v->m->n; i++)
        if (v->m->list[i]->pid == v->chosen)
            return i;
    return 0;
}

static void put_list(usm__out *o, const view *v)
{
    top_put_title(o, v->m, (unsigned)COLS);
    top_put_head(o, v->m, (unsigned)COLS);
    for (size_t i = v->first; i < v->m->n; i++)
        top_put_row(o, v->m->list[i], (unsigned)COLS);
}

static void put_chosen(usm__out *o, const view *v)
{
    if (v->m->n > 0)
        top_put_details(o, v->m->list[chosen_row(v)], (unsigned)COLS);
    else if (v->m->filter)
        usm__out_put(o, "no program whose name has \"%s\" uses libusm now\n", v->m->filter);
    else
        usm__out_put(o, "no process of this user uses libusm now\nlooking in %s\n",
                     v->m->reader.folder);
}

/* Rows of the list that are shown: all, or as many as leave half of the screen to the details. */
static size_t rows_of(const view *v)
{
    size_t most = LINES > 6 ? (size_t)(LINES - 3) / 2 : 1;

    return v->m->n < most ? v->m->n : most;
}

static void draw_list(view *v)
{
    size_t      rows = rows_of(v), row = chosen_row(v);
    const char *line;

    if (row < v->first)
        v->first = row;
    if (row >= v->first + rows)
        v->first = row + 1 - (rows ? rows : 1);
    line = draw_line(0, text_of(v, put_list), A_BOLD);
    line = draw_line(1, line, A_REVERSE);
    for (size_t i = 0; i < rows && *line != '\0'; i++)
        line = draw_line(2 + (int)i, line,
                         v->first + i == row ? A_REVERSE | (attr_t)COLOR_PAIR(CYAN) : A_BOLD);
}

static void draw_details(view *v)
{
    int         y    = 2 + (int)rows_of(v) + (v->m->n > 0 && LINES > 12);
    const char *line = text_of(v, put_chosen);

    for (int i = 0; i < v->scroll && *line != '\0'; i++) {
        const char *next = strchr(line, '\n');

        if (!next || next[1] == '\0') {
            v->scroll = i;
            break;
        }
        line = next + 1;
    }
    for (; y < LINES - 1 && *line != '\0'; y++)
        line = draw_line(y, line, A_NORMAL);
}

static void draw_foot(const view *v)
{
    char        state[160];
    const char *keys = COLS >= 90 ? keys_long : keys_short;

    if (v->has_prompt)
        (void)snprintf(state, sizeof state, "filter: %s_", v->filter);
    else
        (void)snprintf(state, sizeof state, "%s  by %s%s%s%s%s", keys, top_order_name(v->m->order),
                       v->m->is_reversed ? ", reversed" : "", v->is_paused ? ", paused" : "",
                       v->m->filter ? ", filter: " : "", v->m->filter ? v->m->filter : "");
    (void)draw_line(LINES - 1, state, A_REVERSE);
    if (v->gone > 0 && !v->has_prompt && COLS >= 60) {
        (void)snprintf(state, sizeof state, " %zu ended ", v->gone);
        (void)attrset(A_REVERSE);
        (void)mvaddstr(LINES - 1, COLS - (int)strlen(state) - 1, state);
        (void)attrset(A_NORMAL);
    }
}

static void draw(view *v)
{
    (void)erase();
    if (v->has_help) {
        const char *line = help;

        for (int y = 0; y < LINES && *line != '\0'; y++)
            line = draw_line(y, line, y == 0 ? A_BOLD : A_NORMAL);
    } else {
        draw_list(v);
        draw_details(v);
        draw_foot(v);
    }
    (void)refresh();
}

/* ---- keys --------------------------------------------------------------------------------------- */

static void move_by(view *v, long rows)
{
    long to = (long)chosen_row(v) + rows, last = (long)v->m->n - 1;

    to = to > last ? last : to;
    to = to < 0 ? 0 : to;
    if (v->m->n > 0)
        v->chosen = v->m->list[to]->pid;
    v->scroll = 0;
}

static void edit_filter(view *v, int key)
{
    size_t n = strlen(v->filter);

    if (key == '\n' || key == '\r' || key == KEY_ENTER || key == ESCAPE) {
        v->has_prompt = false;
        if (key == ESCAPE)
            v->filter[0] = '\0';
    } else if ((key == KEY_BACKSPACE || key == 127 || key == '\b') && n > 0) {
        v->filter[n - 1] = '\0';
    } else if (key >= ' ' && key < 127 && n + 1 < sizeof v->filter) {
        v->filter[n]     = (char)key;
        v->filter[n + 1] = '\0';
    }
    v->m->filter = v->filter[0] != '\0' ? v->filter : NULL;
}

/* True if the list must be read again. */
static bool change(view *v, int key)
{
    switch (key) {
    case KEY_F(6):
    case 's':
    case '>':
        v->m->order = (top_order)((v->m->order + 1) % TOP_ORDERS);
        return true;
    case 'I':
        v->m->is_reversed = !v->m->is_reversed;
        return true;
    case KEY_F(4):
    case '\\':
        v->has_prompt = true;
        return false;
    case ' ':
        v->is_paused = !v->is_paused;
        return false;
    case '+':
        v->every_ms = v->every_ms > 30000 ? 60000 : v->every_ms * 2;
        return false;
    case '-':
        v->every_ms = v->every_ms < 200 ? 100 : v->every_ms / 2;
        return false;
    case KEY_F(1):
    case 'h':
    case '?':
        v->has_help = true;
        return false;
    case KEY_F(10):
    case 'q':
    case 'Q':
        v->has_ended = true;
        return false;
    case CONTROL_L:
        (void)clearok(curscr, TRUE);
        return false;
    default:
        return false;
    }
}

static void move_to(view *v, int key)
{
    long page = (long)rows_of(v), all = TOP_PROCESSES;

    switch (key) {
    case KEY_UP:
    case 'k':
        move_by(v, -1);
        break;
    case KEY_DOWN:
    case 'j':
        move_by(v, 1);
        break;
    case KEY_PPAGE:
        move_by(v, -page);
        break;
    case KEY_NPAGE:
        move_by(v, page);
        break;
    case KEY_HOME:
        move_by(v, -all);
        break;
    case KEY_END:
        move_by(v, all);
        break;
    case KEY_RIGHT:
        v->scroll += 5;
        break;
    case KEY_LEFT:
        v->scroll = v->scroll > 5 ? v->scroll - 5 : 0;
        break;
    default:
        break;
    }
}

static bool take_key(view *v, int key)
{
    if (v->has_prompt) {
        edit_filter(v, key);
        return true;
    }
    if (v->has_help) {
        v->has_help = false;
        return false;
    }
    move_to(v, key);
    return change(v, key);
}

/* ---- the loop ------------------------------------------------------------------------------------- */

static bool sample(view *v)
{
    bool is_ok = top_take(v->m);

    v->gone += v->m->gone;
    if (v->m->n > 0 && (v->chosen == 0 || v->m->list[chosen_row(v)]->pid != v->chosen))
        v->chosen = v->m->list[0]->pid; /* the chosen one has ended, or is filtered out */
    return is_ok;
}

static void wait_for_key(uint64_t until)
{
    uint64_t now = usm__os_now_ns();

    timeout(until > now ? (int)((until - now) / 1000000) + 1 : 0);
}

/* False: no memory, or `s` ends it. */
static bool run(view *v, const top_screen *s)
{
    uint64_t next  = 0;
    int      key   = ERR;
    bool     is_ok = true;

    while (is_ok && !v->has_ended) {
        if (key != ERR && key != KEY_RESIZE && take_key(v, key) && !v->has_ended)
            is_ok = sample(v);
        if (usm__os_now_ns() >= next) {
            if (!v->is_paused)
                is_ok = sample(v) && s->each(s->arg, v->m);
            next = usm__os_now_ns() + v->every_ms * UINT64_C(1000000);
        }
        draw(v);
        wait_for_key(next);
        key = v->has_ended ? ERR : getch();
        if (key == ERR && usm__os_now_ns() + 1000000 < next && !isatty(STDIN_FILENO))
            break; /* the terminal has gone */
    }
    return is_ok;
}

static void set_colours(bool has_none)
{
    /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
    if (has_none || getenv("NO_COLOR") || !has_colors() || start_color() != OK)
        return;
    (void)use_default_colors();
    (void)init_pair(GREEN, COLOR_GREEN, -1);
    (void)init_pair(BLUE, COLOR_BLUE, -1);
    (void)init_pair(RED, COLOR_RED, -1);
    (void)init_pair(CYAN, COLOR_CYAN, -1);
}

bool top_can_show(void)
{
    return true;
}

/* A terminal as "dumb" is known, but text cannot be put in a place of it. */
static bool can_move(void)
{
    int         error;
    char        name[] = "cup";
    const char *found;
    bool        can;

    if (setupterm(NULL, STDOUT_FILENO, &error) != OK)
        return false;
    found = tigetstr(name);
    can   = found != NULL && found != (const char *)-1;
    (void)del_curterm(cur_term); /* newterm() makes another */
    return can;
}

int top_show(top_model *m, const top_screen *s)
{
    view   *v = usm__heap_alloc(sizeof *v);
    SCREEN *terminal;

    (void)setlocale(LC_CTYPE, "");
    terminal = v && can_move() ? newterm(NULL, stdout, stdin) : NULL;
    if (!terminal) {
        /* NOLINTNEXTLINE(concurrency-mt-unsafe): one thread */
        const char *name = getenv("TERM");

        (void)fprintf(stderr, "usm-top: nothing can be drawn on the terminal \"%s\"; try --once\n",
                      name ? name : "");
        usm__heap_free(v);
        return 1;
    }
    v->m        = m;
    v->every_ms = s->every_ms;
    if (m->filter)
        (void)snprintf(v->filter, sizeof v->filter, "%s", m->filter);
    (void)cbreak();
    (void)noecho();
    (void)keypad(stdscr, TRUE);
    (void)set_escdelay(50);
    (void)curs_set(0);
    set_colours(s->has_no_colours);
    (void)run(v, s);
    (void)endwin();
    delscreen(terminal);
    m->filter = NULL; /* it may be of the view */
    usm__heap_free(v);
    return 0;
}
