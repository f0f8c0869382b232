/*
 * The constants of the NBD protocol (https://github.com/NetworkBlockDevice/nbd, doc/proto.md), named as there. All
 * numbers travel big-endian.
 */
#ifndef ASHLAR_FRONT_NBD_PROTOCOL_H
#define ASHLAR_FRONT_NBD_PROTOCOL_H

#include <stdint.h>

#define NBD_MAGIC UINT64_C(0x4e42444d41474943) /* "NBDMAGIC" */
#define NBD_IHAVEOPT UINT64_C(0x49484156454f5054)
#define NBD_OPTION_REPLY_MAGIC UINT64_C(0x0003e889045565a9)
#define NBD_REQUEST_MAGIC UINT32_C(0x25609513)
#define NBD_SIMPLE_REPLY_MAGIC UINT32_C(0x67446698)
#define NBD_STRUCTURED_REPLY_MAGIC UINT32_C(0x668e33ef)

#define NBD_STRING_BYTES_MAX 4096                 /* names, queries, messages */
#define NBD_PAYLOAD_BYTES_MAX (32u * 1024 * 1024) /* of one READ or WRITE */
#define NBD_TCP_PORT 10809

/* Handshake flags (server) and client flags have the same two bits. */
enum {
    NBD_FLAG_FIXED_NEWSTYLE = 1 << 0,
    NBD_FLAG_NO_ZEROES = 1 << 1,
};
#define NBD_EXPORT_NAME_PADDING_BYTES 124

enum nbd_option_type {
    NBD_OPT_EXPORT_NAME = 1,
    NBD_OPT_ABORT = 2,
    NBD_OPT_LIST = 3,
    NBD_OPT_STARTTLS = 5,
    NBD_OPT_INFO = 6,
    NBD_OPT_GO = 7,
    NBD_OPT_STRUCTURED_REPLY = 8,
    NBD_OPT_LIST_META_CONTEXT = 9,
    NBD_OPT_SET_META_CONTEXT = 10,
    NBD_OPT_EXTENDED_HEADERS = 11,
};

#define NBD_REP_ACK UINT32_C(1)
#define NBD_REP_SERVER UINT32_C(2)
#define NBD_REP_INFO UINT32_C(3)
#define NBD_REP_META_CONTEXT UINT32_C(4)
#define NBD_REP_ERR_UNSUP UINT32_C(0x80000001)
#define NBD_REP_ERR_POLICY UINT32_C(0x80000002)
#define NBD_REP_ERR_INVALID UINT32_C(0x80000003)
#define NBD_REP_ERR_UNKNOWN UINT32_C(0x80000006)
#define NBD_REP_ERR_SHUTDOWN UINT32_C(0x80000007)
#define NBD_REP_ERR_TOO_BIG UINT32_C(0x80000009)

enum nbd_info_type {
    NBD_INFO_EXPORT = 0,
    NBD_INFO_NAME = 1,
    NBD_INFO_DESCRIPTION = 2,
    NBD_INFO_BLOCK_SIZE = 3,
};

/* Transmission flags: what an export can do. */
enum {
    NBD_FLAG_HAS_FLAGS = 1 << 0,
    NBD_FLAG_READ_ONLY = 1 << 1,
    NBD_FLAG_SEND_FLUSH = 1 << 2,
    NBD_FLAG_SEND_FUA = 1 << 3,
    NBD_FLAG_ROTATIONAL = 1 << 4,
    NBD_FLAG_SEND_TRIM = 1 << 5,
    NBD_FLAG_SEND_WRITE_ZEROES = 1 << 6,
    NBD_FLAG_SEND_DF = 1 << 7,
    NBD_FLAG_CAN_MULTI_CONN = 1 << 8,
    NBD_FLAG_SEND_CACHE = 1 << 10,
    NBD_FLAG_SEND_FAST_ZERO = 1 << 11,
};

enum nbd_command_type {
    NBD_CMD_READ = 0,
    NBD_CMD_WRITE = 1,
    NBD_CMD_DISC = 2,
    NBD_CMD_FLUSH = 3,
    NBD_CMD_TRIM = 4,
    NBD_CMD_CACHE = 5,
    NBD_CMD_WRITE_ZEROES = 6,
    NBD_CMD_BLOCK_STATUS = 7,
    NBD_CMD_COUNT,
};

enum {
    NBD_CMD_FLAG_FUA = 1 << 0,
    NBD_CMD_FLAG_NO_HOLE = 1 << 1,
    NBD_CMD_FLAG_DF = 1 << 2,
    NBD_CMD_FLAG_REQ_ONE = 1 << 3,
    NBD_CMD_FLAG_FAST_ZERO = 1 << 4,
};

#define NBD_REPLY_FLAG_DONE 1

enum {
    NBD_REPLY_TYPE_NONE = 0,
    NBD_REPLY_TYPE_OFFSET_DATA = 1,
    NBD_REPLY_TYPE_OFFSET_HOLE = 2,
    NBD_REPLY_TYPE_BLOCK_STATUS = 5,
    NBD_REPLY_TYPE_ERROR = 0x8001,
    NBD_REPLY_TYPE_ERROR_OFFSET = 0x8002,
};

enum {
    NBD_STATE_HOLE = 1 << 0,
    NBD_STATE_ZERO = 1 << 1,
};

/* The only error numbers there are on the wire. */
enum nbd_error_number {
    NBD_EPERM = 1,
    NBD_EIO = 5,
    NBD_ENOMEM = 12,
    NBD_EINVAL = 22,
    NBD_ENOSPC = 28,
    NBD_EOVERFLOW = 75,
    NBD_ENOTSUP = 95,
    NBD_ESHUTDOWN = 108,
};

/* The one metadata context there is, and the id it goes by on the wire. */
#define NBD_BASE_ALLOCATION "base:allocation"
#define NBD_BASE_ALLOCATION_ID 1

#define NBD_GREETING_BYTES 18
#define NBD_CLIENT_FLAGS_BYTES 4
#define NBD_OPTION_HEADER_BYTES 16
#define NBD_OPTION_REPLY_HEADER_BYTES 20
#define NBD_REQUEST_BYTES 28
#define NBD_SIMPLE_REPLY_BYTES 16
#define NBD_CHUNK_HEADER_BYTES 20

#endif
