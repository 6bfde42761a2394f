# Settings of the hooks in this folder, which read them each time, on slurmctld's machine and on the nodes.

# Folder that `signalbox jobs keep` watches: on a local disk of slurmctld's machine, writable for SlurmUser.
jobs=/var/lib/signalbox-jobs/jobs

# Address of the controller's API, for programs that join by themselves. Without it they need their own settings.
#address=192.0.2.10:50051

# Slurm gives its hooks no PATH. Only sweep.sh needs Slurm's commands.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# Path of slurm.conf, if these commands do not find it by themselves.
#export SLURM_CONF=/etc/slurm/slurm.conf
