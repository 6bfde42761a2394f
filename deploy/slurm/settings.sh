# What the hooks beside this file need to know. They read it each time, on slurmctld's machine and on the nodes.

# Where `signalbox jobs keep` looks: a folder on a local disk of slurmctld's machine that SlurmUser can write in.
jobs=/var/lib/signalbox-jobs/jobs

# For programs that join by themselves: where the controller's API listens. Without it they need their own settings.
#address=192.0.2.10:50051

# Slurm gives its hooks no PATH. Slurm's commands are needed by sweep.sh only.
PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin

# If slurm.conf is elsewhere than these commands look by themselves.
#export SLURM_CONF=/etc/slurm/slurm.conf
