/* SPDX-License-Identifier: MIT OR Apache-2.0 */
/*
 * A client of a stream socket that says what it has to say and leaves, and its
 * server.
 *
 *	unheard serve IP PORT   prints what one connection brings
 *	unheard send IP PORT    brings it
 */
#include <arpa/inet.h>
#include <err.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <rdma/rsocket.h>

static void serve(int listener, const struct sockaddr_in *address)
{
	char data[64];
	ssize_t count;
	int fd;

	if (rbind(listener, (const struct sockaddr *)address, sizeof(*address)) ||
	    rlisten(listener, 1))
		err(1, "rlisten");
	fd = raccept(listener, NULL, NULL);
	if (fd < 0)
		err(1, "raccept");
	count = rrecv(fd, data, sizeof(data), MSG_WAITALL);
	if (count < 0)
		err(1, "rrecv");
	printf("received %.*s\n", (int)count, data);
	rclose(fd);
	rclose(listener);
}

static void send_word(int fd, const struct sockaddr_in *address)
{
	static const char word[] = "a word";

	if (rconnect(fd, (const struct sockaddr *)address, sizeof(*address)))
		err(1, "rconnect");
	if (rsend(fd, word, strlen(word), 0) != (ssize_t)strlen(word))
		err(1, "rsend");
	rclose(fd);
}

int main(int count, char **words)
{
	struct sockaddr_in address = { .sin_family = AF_INET };
	int fd;

	if (count != 4 || inet_pton(AF_INET, words[2], &address.sin_addr) != 1)
		errx(2, "usage: unheard serve|send IP PORT");
	address.sin_port = htons(atoi(words[3]));
	fd = rsocket(AF_INET, SOCK_STREAM, 0);
	if (fd < 0)
		err(1, "rsocket");
	if (!strcmp(words[1], "serve"))
		serve(fd, &address);
	else
		send_word(fd, &address);
	return 0;
}
