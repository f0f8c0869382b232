/*
 * EOVERFLOW is never produced here: it belongs to READ with DF and is decided before the engine is asked. What is not
 * listed is a failure of ours that the client can do nothing about, EIO; EINVAL is kept for requests that are wrong.
 */
#include "front/nbd/errors.h"

#include <errno.h>

#include "front/nbd/protocol.h"

uint32_t nbd_error_of(int result, int fast_zero)
{
    switch (-result) {
    case 0:
        return 0;
    case EPERM:
    case EACCES:
    case EROFS:
        return NBD_EPERM;
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
        return NBD_ENOSPC;
    case ENOMEM:
        return NBD_ENOMEM;
    case EINVAL:
    case ERANGE:
        return NBD_EINVAL;
    case ESHUTDOWN:
        return NBD_ESHUTDOWN;
    case EOPNOTSUPP: /* ENOTSUP is the same number */
        return fast_zero ? NBD_ENOTSUP : NBD_EINVAL;
    default:
        return NBD_EIO;
    }
}

const char *nbd_error_name(uint32_t error)
{
    switch (error) {
    case 0:
        return "success";
    case NBD_EPERM:
        return "EPERM";
    case NBD_EIO:
        return "EIO";
    case NBD_ENOMEM:
        return "ENOMEM";
    case NBD_EINVAL:
        return "EINVAL";
    case NBD_ENOSPC:
        return "ENOSPC";
    case NBD_EOVERFLOW:
        return "EOVERFLOW";
    case NBD_ENOTSUP:
        return "ENOTSUP";
    case NBD_ESHUTDOWN:
        return "ESHUTDOWN";
    default:
        return "unknown";
    }
}
