#include <linux/types.h>
#include <endian.h>
#include <stdint.h>
#include <string.h>
#include <sys/socket.h>

// As in <sys/socket.h> of C libraries that know the family.
#ifndef PF_IB
#define PF_IB 27
#endif
#ifndef AF_IB
#define AF_IB PF_IB
#endif
