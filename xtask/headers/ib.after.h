// Short names for the members of struct ib_addr.
#define sib_addr8 ib_u.uib_addr8
#define sib_addr16 ib_u.uib_addr16
#define sib_addr32 ib_u.uib_addr32
#define sib_addr64 ib_u.uib_addr64
#define sib_raw ib_u.uib_addr8
#define sib_subnet_prefix ib_u.uib_addr64[0]
#define sib_interface_id ib_u.uib_addr64[1]

// Whether the address is the wildcard: all zero.
static inline int ib_addr_any(const struct ib_addr *a)
{
  return a->sib_subnet_prefix == 0 && a->sib_interface_id == 0;
}

// Whether the address is the loopback address: 1.
static inline int ib_addr_loopback(const struct ib_addr *a)
{
  return a->sib_subnet_prefix == 0 && a->sib_addr32[2] == 0 &&
         a->sib_addr16[6] == 0 && a->sib_addr8[14] == 0 &&
         a->sib_addr8[15] == 1;
}

// Sets the address from four words in network byte order.
static inline void ib_addr_set(struct ib_addr *addr, __be32 w1, __be32 w2,
                               __be32 w3, __be32 w4)
{
  addr->sib_addr32[0] = w1;
  addr->sib_addr32[1] = w2;
  addr->sib_addr32[2] = w3;
  addr->sib_addr32[3] = w4;
}

// Compares two addresses as memcmp(3) does.
static inline int ib_addr_cmp(const struct ib_addr *a1,
                              const struct ib_addr *a2)
{
  return memcmp(a1, a2, sizeof(*a1));
}
