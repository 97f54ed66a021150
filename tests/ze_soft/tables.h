/* SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception */
/* How a table of entry points is filled for the loader that asks.
 *
 * Tables grow at their end from version to version of the API (all that this driver fills are
 * prefixes of one another from 1.4 to 1.12), and the loader's own may be older than the headers of
 * this build: it may stand on the loader's stack with room for its own fields only.  So each field
 * says since which version it is there, and nothing is written that the `version` argument does not
 * promise; what is not filled stays as the loader left it (null: it answers for us).
 *
 * A file exports its tables so:
 *
 *     SOFT_TABLE(zeGetFenceProcAddrTable, ze_fence_dditable_t)
 *     {
 *         SOFT_TABLE_CHECK();
 *         SOFT_FIELD(1, 0, pfnCreate, soft_zeFenceCreate);
 *         ...
 *         return ZE_RESULT_SUCCESS;
 *     }
 *
 * The same table is asked for more than once, with different versions. */
#ifndef ZE_SOFT_TABLES_H
#define ZE_SOFT_TABLES_H

#include "soft.h"

#define SOFT_TABLE(function, type)                                                                 \
    SOFT_EXPORT ze_result_t ZE_APICALL function(ze_api_version_t version, type *table)

/* Another major version has other tables. */
#define SOFT_TABLE_CHECK()                                                                         \
    do {                                                                                           \
        if (table == NULL)                                                                         \
            return ZE_RESULT_ERROR_INVALID_NULL_POINTER;                                           \
        if (ZE_MAJOR_VERSION((uint32_t)version) != 1)                                              \
            return ZE_RESULT_ERROR_UNSUPPORTED_VERSION;                                            \
    } while (0)

#define SOFT_FIELD(major, minor, field, entry)                                                     \
    do {                                                                                           \
        if ((uint32_t)version >= (uint32_t)ZE_MAKE_VERSION(major, minor))                          \
            table->field = (entry);                                                                \
    } while (0)

/* A table of which this driver has nothing. */
#define SOFT_TABLE_EMPTY(function, type)                                                           \
    SOFT_TABLE(function, type)                                                                     \
    {                                                                                              \
        SOFT_TABLE_CHECK();                                                                        \
        return ZE_RESULT_SUCCESS;                                                                  \
    }

#endif
