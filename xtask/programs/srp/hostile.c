/* An SRP initiator that speaks the protocol wrongly, in every way listed in
 * `cases` at the end. After each, the target must answer a well-behaved
 * initiator: it must have refused what the protocol refuses, kept its credits,
 * and never have touched a block that was not addressed.
 *
 * usage: srp_hostile ADDRESS PORT ID_EXT IOC_GUID
 * The target has one disk of at least 1 MiB, which is overwritten. Prints TAP. */
#include "command_cases.h"
#include "login_cases.h"
#include "task_cases.h"
#include "unit_cases.h"

static const struct {
    const char *name;
    int (*run)(void);
} cases[] = {
    {"login with another opcode", login_opcode},
    {"login without private data", login_empty},
    {"login with too short information units", login_short_iu},
    {"login with the shortest information units", login_least_iu},
    {"login with information units of 1 MiB", login_long_iu},
    {"login with information units of 4 GiB", login_endless_iu},
    {"login without a buffer format", login_formats},
    {"login to another id_ext", login_id_ext},
    {"login to another ioc_guid", login_ioc_guid},
    {"login with immediate data inside the command", login_immediate_low},
    {"login with immediate data beyond the buffer", login_immediate_high},
    {"login again as the only channel", login_single_twice},
    {"login again as another channel", login_multi},
    {"login and vanish", login_and_vanish},
    {"login and stay, again and again", login_and_stay},
    {"unknown information unit", iu_unknown},
    {"response from an initiator", iu_response},
    {"credit response without a request", iu_cred_rsp},
    {"event response without a request", iu_aer_rsp},
    {"empty information unit", iu_empty},
    {"information unit of one byte", iu_one_byte},
    {"command cut off", iu_short_command},
    {"task management request cut off", iu_short_task},
    {"logout cut off", iu_short_logout},
    {"information unit longer than agreed", iu_longer_than_agreed},
    {"logout by information unit", iu_logout},
    {"additional CDB beyond the end", w_cdb_length},
    {"data in both directions", w_both_ways},
    {"unknown descriptor format", w_format},
    {"descriptor cut off", w_cut},
    {"table cut off", w_table_cut},
    {"table of odd length", w_table_odd},
    {"table with less than its total", w_table_total},
    {"table of 4 GiB", w_table_huge},
    {"table without entries", w_table_none},
    {"immediate data cut off", w_immediate_cut},
    {"immediate data of 4 GiB", w_immediate_huge},
    {"immediate data over the additional CDB", w_immediate_cdb},
    {"immediate data that was not agreed on", immediate_not_agreed},
    {"wrong key, to be read from", bad_key_write},
    {"wrong key, to be written to", bad_key_read},
    {"wrong address, to be read from", bad_address_write},
    {"wrong address, to be written to", bad_address_read},
    {"wrong key of a table", bad_table_key},
    {"unknown SCSI command", unknown_command},
    {"blocks beyond the end", beyond_the_end},
    {"logical units that do not exist", absent_unit},
    {"less room than blocks", room_too_small},
    {"room of 4 GiB", room_too_large},
    {"write without data", write_without_data},
    {"read without room", read_without_room},
    {"data in the wrong direction", wrong_direction},
    {"UNMAP list of nonsense", unmap_list},
    {"unknown task management function", task_unknown},
    {"abort of a command that does not exist", task_of_nobody},
    {"one tag for many commands", same_tag},
    {"more commands than credits", beyond_credits},
    {"disconnect with commands under way", leave_commands_behind},
    {"memory taken away with commands under way", take_memory_away},
    {"RDMA write by the initiator", own_write},
    {"empty RDMA write by the initiator", own_empty_write},
    {"RDMA read by the initiator", own_read},
};

int main(int argc, char **argv)
{
    setvbuf(stdout, NULL, _IOLBF, 0);
    if (argc != 5)
        return 2;
    struct sockaddr_in *address = (struct sockaddr_in *)&portal;
    address->sin_family = AF_INET;
    address->sin_port = htons((uint16_t)atoi(argv[2]));
    if (inet_pton(AF_INET, argv[1], &address->sin_addr) != 1)
        return 2;
    put64(target_port, strtoull(argv[3], NULL, 16));
    put64(target_port + 8, strtoull(argv[4], NULL, 16));
    size_t count = sizeof cases / sizeof *cases;
    printf("1..%zu\n", count);
    int failed = 0;
    for (size_t i = 0; i < count; i++) {
        int bad = cases[i].run() || alive();
        failed |= bad;
        if (bad)
            printf("not ok %zu - hostile: %s # %s\n", i + 1, cases[i].name, why);
        else
            printf("ok %zu - hostile: %s\n", i + 1, cases[i].name);
    }
    return failed;
}
