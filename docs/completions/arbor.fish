# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_arbor_global_optspecs
    string join \n h/help V/version
end

function __fish_arbor_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_arbor_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_arbor_using_subcommand
    set -l cmd (__fish_arbor_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c arbor -n "__fish_arbor_needs_command" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_needs_command" -s V -l version -d 'Print version'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "mkfs" -d 'Make a file system in an image file or on a block device'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "mount" -d 'Mount an image on a directory'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "umount" -d 'Take a mount off; everything is durable and the image free on return'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "sync" -d 'Make everything on a mount durable'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "shutdown" -d 'Stop a mount as a power cut would, but for the machine'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "stats" -d 'Count what a mount was asked and what it did'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "fsck" -d 'Check a file system and repair it'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "info" -d 'Show what an image holds'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "label" -d 'Show the label of a file system, or change it'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "resize" -d 'Grow an unmounted file system, and its image file with it'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "trim" -d 'Give free space back to the host'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "clean" -d 'Clean segments of a log; gather the free space of Evergreen'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "scrub" -d 'Verify all checksums, those of the contents of files too'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "ls" -d 'List directories'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "tree" -d 'Show a tree of directories'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "cat" -d 'Write files to the standard output'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "stat" -d 'Show all attributes of files'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "put" -d 'Copy files and trees of the host into an image'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "get" -d 'Copy files and trees out of an image'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "rm" -d 'Remove files and trees'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "mkdir" -d 'Make directories'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "mv" -d 'Move or rename files'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "df" -d 'Show how much space is left, in an image or on a mount'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "du" -d 'Show how much space trees take'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "tar" -d 'Fill a file system from a tar archive, or write it as one'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "map" -d 'Draw where everything lies'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "dump" -d 'Show a structure as it is stored'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "torture" -d 'Test an engine under power cuts, faults of the device, damaged images and concurrency'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "lab" -d 'Run the experiments of papers on simulated disks, and compare'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "completions" -d 'Print completions for a shell'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "man" -d 'Write the manual pages into a directory'
complete -c arbor -n "__fish_arbor_needs_command" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s t -l type -d 'Kind of file system' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s s -l size -d 'Size with K, M, G or T; the size of the file if it is there' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s L -l label -d 'Label, at most 63 bytes' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s U -l uuid -d 'UUID: "random", "time", "null" or one in full' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s d -l directory -d 'Fill it with this directory, or with this tar archive ("-" for the standard input)' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s f -l force -d 'Go on even if the image holds something'
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s q -l quiet -d 'Print nothing but errors'
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s n -l dry-run -d 'Say what would be done, and do nothing'
complete -c arbor -n "__fish_arbor_using_subcommand mkfs" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand mount" -l new -d 'Make the image first, with a file system of this size; it must not exist yet' -r
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s t -l type -d 'Kind of file system; by default what the image holds' -r
complete -c arbor -n "__fish_arbor_using_subcommand mount" -l ready-fd -d 'Tell on this file descriptor that the mount works (used between two processes of arbor)' -r
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s f -l foreground -d 'Stay in the foreground; messages go to standard error then, otherwise to syslog'
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s q -l quiet -d 'Do not say what was mounted where'
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s v -l verbose -d 'Say also how requests come from the kernel, and what is waited for'
complete -c arbor -n "__fish_arbor_using_subcommand mount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand umount" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand sync" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand shutdown" -l now -d 'Stop at once: what is not durable is lost'
complete -c arbor -n "__fish_arbor_using_subcommand shutdown" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand stats" -s w -l watch -d 'Again and again, after so many seconds each: what has been added since' -r
complete -c arbor -n "__fish_arbor_using_subcommand stats" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand stats" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -l path -d 'Check this file or directory and the way to it, nothing else; repairs nothing' -r
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s n -d 'Change nothing (the default). What cannot be read is reported, and taken as zeros'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s p -s a -d 'Repair what is safe, without asking'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s y -d 'Repair everything that can be repaired. It ends where the device cannot be read'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s f -l force -d 'Check even if the file system says it is clean'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -l json -d 'Report as JSON'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s v -l verbose -d 'List every issue, however many there are of one kind'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s C -d 'Show progress; a file descriptor may follow, as fsck(8) passes it'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s r -d 'Accepted: nothing is ever asked'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s T -d 'Ignored'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s V -d 'Print the version'
complete -c arbor -n "__fish_arbor_using_subcommand fsck" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand info" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand info" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand info" -l export -d 'As KEY=VALUE lines, like blkid(8)'
complete -c arbor -n "__fish_arbor_using_subcommand info" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand label" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand label" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand resize" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand resize" -l meta -d 'New size of the area for metadata, of DualFS; +SIZE grows by so much. On one device the area for data loses it' -r
complete -c arbor -n "__fish_arbor_using_subcommand resize" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand trim" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand trim" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand clean" -s b -l budget -d 'Read about so much at most, with K, M, G or T; at least one segment' -r
complete -c arbor -n "__fish_arbor_using_subcommand clean" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand clean" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand scrub" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand scrub" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand ls" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand ls" -s l -d 'With mode, links, owner, size and time'
complete -c arbor -n "__fish_arbor_using_subcommand ls" -s a -d 'Names that begin with a dot, too'
complete -c arbor -n "__fish_arbor_using_subcommand ls" -s R -d 'Directories in directories, too'
complete -c arbor -n "__fish_arbor_using_subcommand ls" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand ls" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand tree" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand tree" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand cat" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand cat" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand stat" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand stat" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand stat" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand put" -l owner -d 'Owner of everything put in, instead of the owners on the host' -r
complete -c arbor -n "__fish_arbor_using_subcommand put" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand put" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand get" -l preserve -d 'Keep this too. Only root can' -r -f -a "owner\t'Owners and groups'
setid\t'Set-id bits and the attributes "security.*" and "trusted.*", of files whose owner is kept too'
devices\t'Device nodes'
all\t'All of these'"
complete -c arbor -n "__fish_arbor_using_subcommand get" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand get" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand rm" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand rm" -s r -s R -d 'Directories too, with all they hold'
complete -c arbor -n "__fish_arbor_using_subcommand rm" -s f -d 'Names that do not exist are fine'
complete -c arbor -n "__fish_arbor_using_subcommand rm" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand mkdir" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand mkdir" -s p -d 'Those above too; one that exists is fine'
complete -c arbor -n "__fish_arbor_using_subcommand mkdir" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand mv" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand mv" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand df" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand df" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand df" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand du" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand du" -s s -d 'Totals only'
complete -c arbor -n "__fish_arbor_using_subcommand du" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand du" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand tar" -l import -d 'Archive to unpack over the file system; "-" for the standard input' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand tar" -l export -d 'Archive to write; "-" for the standard output' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand tar" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand tar" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand map" -s o -l output -d 'Write a picture (SVG) there, instead of a map in letters here; "-" for the standard output' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand map" -s O -l options -d 'Options of the image, as -o of the other commands' -r
complete -c arbor -n "__fish_arbor_using_subcommand map" -l json -d 'Counts of fragments as JSON, and no map'
complete -c arbor -n "__fish_arbor_using_subcommand map" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand dump" -s o -d 'Options: offset=N for a volume inside a larger file, and those of the engine, as log=FILE of yfs for an external log and data=FILE of dualfs for data on a device of their own' -r
complete -c arbor -n "__fish_arbor_using_subcommand dump" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand dump" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand torture" -s t -l engine -d 'The engine' -r
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l seconds -d 'Ends after so many seconds; without it everything that is planned is done, which takes an hour or two' -r
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l seed -d 'Seed of everything that is drawn; drawn itself and printed if it is not given' -r
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l only -d 'Only this part' -r -f -a "crash\t'Power cuts at every write and flush'
fault\t'Faults of the device while it runs'
fuzz\t'Damaged images'
concurrency\t'Several tasks at once, under chosen schedules'"
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l share -d 'Of the crash part, one share of several: those of one seed add up to the whole, and each can be run at another time or on another machine' -r
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l json -d 'Writes the counts to this file as JSON' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand torture" -l repeat -d 'Does once more what the line of a failure says' -r
complete -c arbor -n "__fish_arbor_using_subcommand torture" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "list" -d 'List the experiments and the subjects they are run on'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "disks" -d 'List the simulated disks'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "hosts" -d 'List the hosts: what the drivers do with requests, and what the processors take'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "disk" -d 'Show a simulated disk as a file, for other programs'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "run" -d 'Run an experiment'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and not __fish_seen_subcommand_from list disks hosts disk run replay" -f -a "replay" -d 'Replay a trace of requests on simulated disks'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from list" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disks" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disks" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from hosts" -l json -d 'As JSON'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from hosts" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -s m -l model -d 'Model of the disk; `arbor lab disks` lists them' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -s s -l size -d 'Size of the file, with K, M, G or T [default: the disk\'s capacity]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l trace -d 'Writes all requests with their times to this file at the end' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l keep -d 'Keeps the bytes in this file, which is made if it is missing, and not in memory' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l scheduler -d 'Order in which the driver hands requests to the disk' -r -f -a "clook\t'One-way elevator'
fifo\t'In the order of arrival'
sstf\t'The nearest address first'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l queue-depth -d 'At most so many requests are with the disk at once; its own tags limit it too' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l max-transfer -d 'Adjacent requests are merged up to this size, larger ones split; 0: neither [default: 128K, or what the paper\'s controller took]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l merge -d 'What is merged to one request [default: what the paper\'s host did]' -r -f -a "adjacent\t'Whatever is adjacent, as in Linux'
buffers\t'The blocks of one file that are in a row, as in FreeBSD 4; all else is written buffer by buffer'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l deadline-ms -d 'A write is due after so many milliseconds [default: 5000]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l batch -d 'Writes that go in a row when they are due [default: 16]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l write-cache -d 'Size of a hard disk\'s write cache; 0: off [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l tags -d 'Requests that a hard disk takes at once [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l peer -d 'Mounts this file system of the kernel on the disk, in DIR, and takes orders on the standard input' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l memory -d 'Memory of the kernel for that, bytes' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l dirty -d 'How much of that memory may be dirty, bytes' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l no-prefer-reads -d 'Reads do not go before writes'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l json -d 'Statistics as JSON'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -l access-times -d 'Whether the kernel keeps all access times for that'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from disk" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -s s -l subject -d 'These subjects, or file systems of the kernel, in the place of the paper\'s; `arbor lab list` lists them. Or one more: NAME, which is ENGINE with options of mkfs and of mount, either of which may be missing; for a further device, such as `log`, give its size. All its rows say so' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l with -d 'One more subject: NAME, which is SUBJECT with further options of mount, or others' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l case -d 'Only this case of the experiment; may be repeated. A name that is none is answered with those there are' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -s t -l engine -d 'Only subjects of these engines' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -s d -l disk -d 'Simulated disk; `arbor lab disks` lists them [default: the paper\'s]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l seed -d 'Seed of the first run; further ones count up' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l runs -d 'Runs of each workload; figures are means' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l lanes -d 'Programs of each workload that run at the same time on one volume, each in a directory of its own; they share the disk and one processor' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l divisor -d 'Divides counts of files and operations, to try something out: small runs stay in memory. Unless it is 1 there are no figures of the paper' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l host -d 'Host, that is the driver and the processor; `arbor lab hosts` lists them [default: the paper\'s]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l dirty-buffers -d 'Most buffers that are dirty before some are written, where an engine counts them [default: that of the host]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l cpu-call-ns -d 'Virtual time that the processor takes for each call, in nanoseconds [default: that of the host]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l cpu-kib-ns -d 'Virtual time that the processor takes for each KiB read or written, in nanoseconds [default: likewise]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l cpu-compare-ns -d 'Virtual time that the processor takes for each name compared, where an engine counts them, in nanoseconds [default: likewise]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l scheduler -d 'Order in which the driver hands requests to the disk' -r -f -a "clook\t'One-way elevator'
fifo\t'In the order of arrival'
sstf\t'The nearest address first'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l queue-depth -d 'At most so many requests are with the disk at once; its own tags limit it too' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l max-transfer -d 'Adjacent requests are merged up to this size, larger ones split; 0: neither [default: 128K, or what the paper\'s controller took]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l merge -d 'What is merged to one request [default: what the paper\'s host did]' -r -f -a "adjacent\t'Whatever is adjacent, as in Linux'
buffers\t'The blocks of one file that are in a row, as in FreeBSD 4; all else is written buffer by buffer'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l deadline-ms -d 'A write is due after so many milliseconds [default: 5000]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l batch -d 'Writes that go in a row when they are due [default: 16]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l write-cache -d 'Size of a hard disk\'s write cache; 0: off [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l tags -d 'Requests that a hard disk takes at once [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l also -d 'Gives further figures of each part' -r -f -a "latency\t'How long calls take: median, 99%, 99.9% and largest. Not of file systems of the kernel'
amplification\t'Bytes written by the file system for each byte of the program, and by the flash for each byte of the file system'
counters\t'All counters of the engine, by name'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l json -d 'Writes all figures to this file as JSON, each with the settings that it was measured with' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l report -d 'Writes tables and pictures to this file, a page that needs nothing else' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l figures -d 'Writes tables as Markdown, pictures as SVG and the rows into this directory, which is made if it is not there' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l trace-out -d 'Writes all requests to the disk of the first run to this file, with their times, in the format that `arbor lab replay` reads. Of several experiments, subjects or cases each has a file, with what it is of before the extension' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l rows -d 'Adds figures of these files, written by --json with the same settings, and compares them with the others; there may be fewer runs, or cases. Of a subject that is run, none are taken' -r -F
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l alone -d 'Runs what is defined by --subject and --with without the paper\'s subjects'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l no-prefer-reads -d 'Reads do not go before writes'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -l details -d 'Prints all figures; otherwise only the times'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -s d -l disk -d 'Simulated disks; `arbor lab disks` lists them' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -s f -l format -d 'Who wrote the trace [default: what its first line says]' -r -f -a "arbor\t'This laboratory'
blkparse\t'blkparse, its default output'
fio\t'fio, by `write_iolog`'
msr\t'Microsoft Research Cambridge, and whoever writes its CSV'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l depth -d 'How many requests are under way then' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l scheduler -d 'Order in which the driver hands requests to the disk' -r -f -a "clook\t'One-way elevator'
fifo\t'In the order of arrival'
sstf\t'The nearest address first'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l queue-depth -d 'At most so many requests are with the disk at once; its own tags limit it too' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l max-transfer -d 'Adjacent requests are merged up to this size, larger ones split; 0: neither [default: 128K, or what the paper\'s controller took]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l merge -d 'What is merged to one request [default: what the paper\'s host did]' -r -f -a "adjacent\t'Whatever is adjacent, as in Linux'
buffers\t'The blocks of one file that are in a row, as in FreeBSD 4; all else is written buffer by buffer'"
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l deadline-ms -d 'A write is due after so many milliseconds [default: 5000]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l batch -d 'Writes that go in a row when they are due [default: 16]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l write-cache -d 'Size of a hard disk\'s write cache; 0: off [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l tags -d 'Requests that a hard disk takes at once [default: that of the disk]' -r
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l closed -d 'Whatever the times of the trace: the next request is issued when one that is under way is complete'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l wrap -d 'Offsets past the end of a disk go on at its beginning; otherwise they are errors'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l no-prefer-reads -d 'Reads do not go before writes'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -l json -d 'As JSON, with times in nanoseconds'
complete -c arbor -n "__fish_arbor_using_subcommand lab; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c arbor -n "__fish_arbor_using_subcommand completions" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand man" -s h -l help -d 'Print help'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "mkfs" -d 'Make a file system in an image file or on a block device'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "mount" -d 'Mount an image on a directory'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "umount" -d 'Take a mount off; everything is durable and the image free on return'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "sync" -d 'Make everything on a mount durable'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "shutdown" -d 'Stop a mount as a power cut would, but for the machine'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "stats" -d 'Count what a mount was asked and what it did'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "fsck" -d 'Check a file system and repair it'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "info" -d 'Show what an image holds'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "label" -d 'Show the label of a file system, or change it'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "resize" -d 'Grow an unmounted file system, and its image file with it'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "trim" -d 'Give free space back to the host'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "clean" -d 'Clean segments of a log; gather the free space of Evergreen'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "scrub" -d 'Verify all checksums, those of the contents of files too'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "ls" -d 'List directories'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "tree" -d 'Show a tree of directories'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "cat" -d 'Write files to the standard output'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "stat" -d 'Show all attributes of files'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "put" -d 'Copy files and trees of the host into an image'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "get" -d 'Copy files and trees out of an image'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "rm" -d 'Remove files and trees'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "mkdir" -d 'Make directories'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "mv" -d 'Move or rename files'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "df" -d 'Show how much space is left, in an image or on a mount'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "du" -d 'Show how much space trees take'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "tar" -d 'Fill a file system from a tar archive, or write it as one'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "map" -d 'Draw where everything lies'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "dump" -d 'Show a structure as it is stored'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "torture" -d 'Test an engine under power cuts, faults of the device, damaged images and concurrency'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "lab" -d 'Run the experiments of papers on simulated disks, and compare'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "completions" -d 'Print completions for a shell'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "man" -d 'Write the manual pages into a directory'
complete -c arbor -n "__fish_arbor_using_subcommand help; and not __fish_seen_subcommand_from mkfs mount umount sync shutdown stats fsck info label resize trim clean scrub ls tree cat stat put get rm mkdir mv df du tar map dump torture lab completions man help" -f -a "help" -d 'Print this message or the help of the given subcommand(s)'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "list" -d 'List the experiments and the subjects they are run on'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "disks" -d 'List the simulated disks'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "hosts" -d 'List the hosts: what the drivers do with requests, and what the processors take'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "disk" -d 'Show a simulated disk as a file, for other programs'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "run" -d 'Run an experiment'
complete -c arbor -n "__fish_arbor_using_subcommand help; and __fish_seen_subcommand_from lab" -f -a "replay" -d 'Replay a trace of requests on simulated disks'
