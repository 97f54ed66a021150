/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* What the sample md5 compares devices with: its digests against RFC 1321's own examples, its
 * numbers of texts there and back. */
#include "plain.h"

#include "../../samples/md5/text.h"

static void check_digest(const char *message, const char *wanted)
{
    uint8_t digest[16], again[16];
    char    hex[33];

    md5_digest_of(message, strlen(message), digest);
    md5_print_digest(digest, hex);
    CHECK_STR(hex, wanted);
    CHECK(md5_parse_digest(hex, again));
    CHECK(memcmp(digest, again, sizeof digest) == 0);
}

static void digests_are_those_of_rfc_1321(void)
{
    check_digest("", "d41d8cd98f00b204e9800998ecf8427e");
    check_digest("a", "0cc175b9c0f1b6a831c399e269772661");
    check_digest("abc", "900150983cd24fb0d6963f7d28e17f72");
    check_digest("message digest", "f96b697d7cb7938d525a2f31aaf161d0");
    check_digest("abcdefghijklmnopqrstuvwxyz", "c3fcd3d76192e4007dfb496cca67e13b");
    /* the longest message of one block: the digest is of openssl md5 */
    check_digest("0123456789012345678901234567890123456789012345678901234",
                 "6e7a4fc92eb1c3f6e652425bcc8d44b5");
}

static void digests_that_are_none_are_refused(void)
{
    uint8_t digest[16];

    CHECK(!md5_parse_digest("", digest));
    CHECK(!md5_parse_digest("900150983cd24fb0d6963f7d28e17f7", digest));
    CHECK(!md5_parse_digest("900150983cd24fb0d6963f7d28e17f721", digest));
    CHECK(!md5_parse_digest("900150983cd24fb0d6963f7d28e17f7x", digest));
}

static void check_text(int64_t number, const char *text)
{
    const struct md5_answer answer = md5_text_of(number);

    CHECK_STR(answer.text, text);
    CHECK_INT(answer.length, strlen(text));
    CHECK_INT(md5_number_of(text), number);
}

static void texts_are_numbered_by_length_and_alphabet(void)
{
    check_text(0, "a");
    check_text(25, "z");
    check_text(26, "aa");
    check_text(701, "zz");
    check_text(702, "aaa");
    check_text(730, "abc");
    check_text(INT64_C(2580398988131886037), "zzzzzzzzzzzzz");
    for (int64_t number = 0; number < 20000; number++)
        CHECK_INT(md5_number_of(md5_text_of(number).text), number);
    CHECK_INT(md5_texts_up_to(1), 26);
    CHECK_INT(md5_texts_up_to(3), 18278);
    CHECK_INT(md5_texts_up_to(MD5_LONGEST), INT64_C(2580398988131886038));
}

static void what_is_no_text_has_no_number(void)
{
    CHECK_INT(md5_number_of(""), MD5_ABSENT);
    CHECK_INT(md5_number_of("Abc"), MD5_ABSENT);
    CHECK_INT(md5_number_of("a c"), MD5_ABSENT);
    CHECK_INT(md5_number_of("aaaaaaaaaaaaaa"), MD5_ABSENT); /* longer than the longest */
    CHECK_INT(md5_text_of(MD5_ABSENT).length, 0);
}

static void a_scan_finds_the_lowest_in_its_range(void)
{
    struct md5_request request = {.from = 700, .to = 731};

    md5_digest_of("abc", 3, request.digest);
    CHECK_INT(md5_scan(&request), 730);
    request.to = 730;
    CHECK_INT(md5_scan(&request), MD5_ABSENT);
    request.from = 731;
    request.to   = 800;
    CHECK_INT(md5_scan(&request), MD5_ABSENT);
}

static const plain_case cases[] = {
    CASE(digests_are_those_of_rfc_1321),
    CASE(digests_that_are_none_are_refused),
    CASE(texts_are_numbered_by_length_and_alphabet),
    CASE(what_is_no_text_has_no_number),
    CASE(a_scan_finds_the_lowest_in_its_range),
    {NULL, NULL},
};

int main(int argc, char **argv)
{
    return plain_main(argc, argv, cases);
}
