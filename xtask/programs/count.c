/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * Preloaded in front of libibverbs: counts the calls that a connection costs
 * there and writes "NAME COUNT" lines to the file $COUNT_FILE at exit.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>

#include <infiniband/verbs.h>

static atomic_int modified, allocated, deallocated;

int ibv_modify_qp(struct ibv_qp *qp, struct ibv_qp_attr *attr, int mask)
{
	int (*real)(struct ibv_qp *, struct ibv_qp_attr *, int) =
		dlsym(RTLD_NEXT, "ibv_modify_qp");

	modified++;
	return real(qp, attr, mask);
}

struct ibv_pd *ibv_alloc_pd(struct ibv_context *context)
{
	struct ibv_pd *(*real)(struct ibv_context *) = dlsym(RTLD_NEXT, "ibv_alloc_pd");

	allocated++;
	return real(context);
}

int ibv_dealloc_pd(struct ibv_pd *pd)
{
	int (*real)(struct ibv_pd *) = dlsym(RTLD_NEXT, "ibv_dealloc_pd");

	deallocated++;
	return real(pd);
}

__attribute__((destructor)) static void write_counts(void)
{
	const char *name = getenv("COUNT_FILE");
	FILE *file = name ? fopen(name, "w") : NULL;

	if (!file)
		return;
	fprintf(file, "modify_qp %d\nalloc_pd %d\ndealloc_pd %d\n",
		modified, allocated, deallocated);
	fclose(file);
}
