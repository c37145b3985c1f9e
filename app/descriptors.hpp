// The process's table of open files.

#pragma once

namespace troupe::app {

/// Makes the table large enough for all that the process may open (65,536 at most). Call it while
/// there is one thread.
///
/// The table grows by doubling, and in a process of several threads the kernel waits each time
/// until all cores have passed a quiet point, with the table locked: ten milliseconds on an idle
/// machine, many seconds have been seen on busy cores. A node that connects to others opens files
/// by the dozen, and would stand still for that long with whoever waits for it.
void make_room_for_descriptors();

}  // namespace troupe::app
