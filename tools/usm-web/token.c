/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* The secret of one start of usm-web: see web.h.
 *
 * It is printed behind the '#' of the page's address.  Browsers send that part to nobody: it is in
 * no request line, no log and no Referer header.  The page's script takes it from there, removes it
 * from the address bar, and sends it in the Authorization header of each request.  A cookie would
 * be sent by the browser on its own, also when a foreign page asks; a header of a script's is not.
 */
#include "web.h"

#include <string.h>
#include <sys/random.h>

bool token_make(char *token)
{
    unsigned char bytes[TOKEN_BYTES];

    if (getrandom(bytes, sizeof bytes, 0) != (ssize_t)sizeof bytes)
        return false;
    for (size_t i = 0; i < sizeof bytes; i++)
        (void)snprintf(token + 2 * i, 3, "%02x", bytes[i]);
    return true;
}

bool token_equal(const char *token, const char *given)
{
    volatile unsigned char differ = 0;

    if (strlen(given) != TOKEN_DIGITS)
        return false;
    for (size_t i = 0; i < TOKEN_DIGITS; i++)
        differ |= (unsigned char)(token[i] ^ given[i]);
    return differ == 0;
}
